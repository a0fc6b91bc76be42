package examples

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// defaultShutdown is shutdown_timeout where a configuration does not say it.
const defaultShutdown = 25 * time.Second

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// documents decodes every YAML document of a text into a T; keys that T does
// not have are errors.
func documents[T any](t *testing.T, name string, text []byte) []T {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField())
	var out []T
	for {
		var v T
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, v)
	}
}

// object is as much of Kubernetes' API as the manifests use, so that a key in
// the wrong place does not go unseen.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name, Namespace     string
		Labels, Annotations map[string]string
	}
	AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
	Data                         map[string]string
	Spec                         struct {
		Replicas int
		Strategy struct{ Type string }
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Template         pod
		AccessModes      []string `yaml:"accessModes"`
		StorageClassName string   `yaml:"storageClassName"`
		Resources        resources
	}
}

type pod struct {
	Metadata struct{ Labels, Annotations map[string]string }
	Spec     struct {
		ServiceAccountName            string `yaml:"serviceAccountName"`
		AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
		TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               struct {
			RunAsNonRoot        bool                  `yaml:"runAsNonRoot"`
			RunAsUser           int                   `yaml:"runAsUser"`
			RunAsGroup          int                   `yaml:"runAsGroup"`
			FSGroup             int                   `yaml:"fsGroup"`
			FSGroupChangePolicy string                `yaml:"fsGroupChangePolicy"`
			SeccompProfile      struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		InitContainers []container `yaml:"initContainers"`
		Containers     []container
		Volumes        []struct {
			Name                  string
			ConfigMap             struct{ Name string } `yaml:"configMap"`
			PersistentVolumeClaim struct {
				ClaimName string `yaml:"claimName"`
			} `yaml:"persistentVolumeClaim"`
			EmptyDir struct {
				SizeLimit string `yaml:"sizeLimit"`
			} `yaml:"emptyDir"`
		}
	}
}

type container struct {
	Name, Image   string
	RestartPolicy string `yaml:"restartPolicy"`
	Args          []string
	Env           []variable
	Ports         []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe   probe `yaml:"startupProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	Lifecycle      struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	Resources       resources
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Privileged               bool
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type variable struct {
	Name, Value string
	ValueFrom   struct {
		SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
		FieldRef     struct {
			FieldPath string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
	} `yaml:"valueFrom"`
}

type probe struct {
	HTTPGet struct {
		Path string
		Port string
	} `yaml:"httpGet"`
	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

type resources struct{ Requests, Limits map[string]string }

const base = "kubernetes/base"

// kustomization is what a base or overlay lists.
type kustomization struct {
	APIVersion         string `yaml:"apiVersion"`
	Kind               string
	Namespace          string
	Resources          []string
	ConfigMapGenerator []struct {
		Name  string
		Files []string
	} `yaml:"configMapGenerator"`
	Images []struct {
		Name    string
		NewName string `yaml:"newName"`
		NewTag  string `yaml:"newTag"`
	}
	Patches []struct {
		Target struct{ Kind, Name string }
		Patch  string
	}
}

// manifests are the base's resources by "Kind/name".
func manifests(t *testing.T) (kustomization, map[string]object) {
	t.Helper()
	k := documents[kustomization](t, base, read(t, base+"/kustomization.yaml"))[0]
	all := map[string]object{}
	for _, name := range k.Resources {
		for _, o := range documents[object](t, name, read(t, base+"/"+name)) {
			all[o.Kind+"/"+o.Metadata.Name] = o
		}
	}
	return k, all
}

// bridgeConfig is what of the bridge's configuration the manifest depends on;
// the program itself checks the whole, in cmd/otel-bridge.
type bridgeConfig struct {
	Sources []struct{ DSH struct{ Path string } }
	Outbox  struct {
		Dir     string
		MaxSize string `yaml:"max_size"`
	}
	Admin           struct{ Listen string }
	ShutdownTimeout string `yaml:"shutdown_timeout"`
}

func TestEveryManifestOfTheBaseIsListed(t *testing.T) {
	k, _ := manifests(t)
	listed := append([]string{"kustomization.yaml"}, k.Resources...)
	for _, g := range k.ConfigMapGenerator {
		listed = append(listed, g.Files...)
	}
	files, err := filepath.Glob(filepath.FromSlash(base + "/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(listed, filepath.Base(f)) {
			t.Errorf("%s is not listed", f)
		}
	}
}

func TestPodKeepsTheBridgesPromises(t *testing.T) {
	k, all := manifests(t)
	d, ok := all["Deployment/agent"]
	if !ok {
		t.Fatal("there is no Deployment")
	}
	p := d.Spec.Template.Spec
	for label, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Metadata.Labels[label] != v {
			t.Errorf("the selector's %s is no label of the Pod", label)
		}
	}
	if d.Spec.Replicas != 1 || d.Spec.Strategy.Type != "Recreate" {
		t.Error("a data directory serves one Pod at a time")
	}
	if _, ok := all["ServiceAccount/"+p.ServiceAccountName]; !ok || p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken {
		t.Error("the Pod has a way to the cluster's API, or an account that is not here")
	}
	sc := p.SecurityContext
	if !sc.RunAsNonRoot || sc.RunAsUser == 0 || sc.SeccompProfile.Type != "RuntimeDefault" {
		t.Error("the Pod is not confined")
	}
	if sc.FSGroupChangePolicy != "OnRootMismatch" {
		t.Error("fsGroup would open the data directory's private files to the group at every start")
	}
	if len(p.InitContainers) != 1 || len(p.Containers) != 1 {
		t.Fatal("want one bridge and one agent")
	}
	bridge, agent := p.InitContainers[0], p.Containers[0]
	if bridge.RestartPolicy != "Always" {
		t.Error("the bridge is no sidecar container: it would have to end before the agent starts")
	}
	for _, c := range []container{bridge, agent} {
		s := c.SecurityContext
		if !s.ReadOnlyRootFilesystem || s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
			t.Errorf("%s is not confined", c.Name)
		}
		if c.Resources.Limits["memory"] == "" || c.Resources.Requests["memory"] == "" {
			t.Errorf("%s has no bound of memory", c.Name)
		}
	}
	if size(t, bridge.Resources.Limits["memory"]) < size(t, "128Mi") {
		t.Error("the bridge's limit of memory is below what it promises to need")
	}

	// What the configuration says and what the Pod gives are one thing.
	cfgName := k.ConfigMapGenerator[0].Files[0]
	text := read(t, base+"/"+cfgName)
	var cfg bridgeConfig
	if err := yaml.Unmarshal(text, &cfg); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\$\{env:(\w+)\}`).FindAllStringSubmatch(string(text), -1) {
		if !slices.ContainsFunc(bridge.Env, func(v variable) bool { return v.Name == m[1] }) {
			t.Errorf("the configuration needs %s, which the Pod does not set", m[1])
		}
	}
	port := cfg.Admin.Listen[strings.LastIndex(cfg.Admin.Listen, ":")+1:]
	if len(bridge.Ports) != 1 || strconv.Itoa(bridge.Ports[0].ContainerPort) != port || strings.HasPrefix(cfg.Admin.Listen, "127.") {
		t.Errorf("the kubelet cannot reach %s", cfg.Admin.Listen)
	}
	for path, probes := range map[string][]probe{
		"/healthz": {bridge.StartupProbe, bridge.LivenessProbe}, "/readyz": {bridge.ReadinessProbe},
	} {
		for _, pr := range probes {
			if pr.HTTPGet.Path != path || pr.HTTPGet.Port != bridge.Ports[0].Name {
				t.Errorf("a probe asks %s at %s, want %s", pr.HTTPGet.Path, pr.HTTPGet.Port, path)
			}
		}
	}
	if got := d.Spec.Template.Metadata.Annotations["prometheus.io/port"]; got != port {
		t.Errorf("Prometheus is sent to port %q", got)
	}
	shutdown, err := time.ParseDuration(cfg.ShutdownTimeout)
	if err != nil {
		t.Fatal(err)
	}
	grace, pause := time.Duration(p.TerminationGracePeriodSeconds)*time.Second, time.Duration(bridge.Lifecycle.PreStop.Sleep.Seconds)*time.Second
	if pause <= 0 || grace < pause+shutdown+10*time.Second {
		t.Errorf("grace of %v leaves the agent less than ten seconds beside %v and %v", grace, pause, shutdown)
	}

	// Volumes: the ledgers are the agent's and read only here, the data is ours.
	claims := map[string]string{} // volume → claim
	var volumes []string
	for _, v := range p.Volumes {
		volumes = append(volumes, v.Name)
		if c := v.PersistentVolumeClaim.ClaimName; c != "" {
			claims[v.Name] = c
			if _, ok := all["PersistentVolumeClaim/"+c]; !ok {
				t.Errorf("there is no claim %s", c)
			}
		}
		if m := v.ConfigMap.Name; m != "" && m != k.ConfigMapGenerator[0].Name {
			t.Errorf("there is no ConfigMap %s", m)
		}
	}
	for _, c := range []container{bridge, agent} {
		for _, m := range c.VolumeMounts {
			if !slices.Contains(volumes, m.Name) {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
		}
	}
	mount := func(c container, path string) (volume string, readOnly, below bool) {
		for _, m := range c.VolumeMounts {
			if path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/") {
				return m.Name, m.ReadOnly, path != m.MountPath
			}
		}
		return "", false, false
	}
	if v, _, below := mount(bridge, bridge.Args[len(bridge.Args)-1]); v != "config" || !below || filepath.Base(bridge.Args[len(bridge.Args)-1]) != cfgName {
		t.Errorf("the configuration is not where %v looks for it", bridge.Args)
	}
	sessions := cfg.Sources[0].DSH.Path
	theirs, readOnly, _ := mount(bridge, sessions)
	ours, _, _ := mount(agent, sessions)
	if theirs == "" || theirs != ours || claims[theirs] == "" || !readOnly {
		t.Errorf("%s is not one lasting volume of agent and bridge, read only for the bridge", sessions)
	}
	data, readOnly, below := mount(bridge, cfg.Outbox.Dir)
	if claims[data] == "" || readOnly || !below || claims[data] == claims[theirs] {
		t.Errorf("%s is not below a lasting volume of the bridge's own", cfg.Outbox.Dir)
	}
	claim := all["PersistentVolumeClaim/"+claims[data]].Spec.Resources.Requests["storage"]
	if size(t, cfg.Outbox.MaxSize) >= size(t, claim) {
		t.Errorf("outbox.max_size %s does not fit the claim of %s", cfg.Outbox.MaxSize, claim)
	}
}

// size reads 4GiB and Kubernetes' 4Gi.
func size(t *testing.T, s string) int64 {
	t.Helper()
	for unit, factor := range map[string]int64{"Mi": 1 << 20, "Gi": 1 << 30} {
		if digits, ok := strings.CutSuffix(strings.TrimSuffix(s, "B"), unit); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n * factor
		}
	}
	t.Fatalf("%q is no size", s)
	return 0
}

func TestOverlayBuildsWithKustomize(t *testing.T) {
	documents[kustomization](t, "overlay", read(t, "kubernetes/overlay/kustomization.yaml"))
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed")
	}
	var stderr bytes.Buffer
	cmd := exec.Command(kubectl, "kustomize", filepath.FromSlash("kubernetes/overlay"))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	kinds := map[string]int{}
	for _, o := range documents[object](t, "overlay", out) {
		kinds[o.Kind]++
		if o.Metadata.Namespace == "" {
			t.Errorf("%s has no namespace", o.Kind)
		}
		if o.Kind != "Deployment" {
			continue
		}
		for _, c := range append(o.Spec.Template.Spec.InitContainers, o.Spec.Template.Spec.Containers...) {
			if !strings.HasPrefix(c.Image, "registry.example.com/") || strings.HasSuffix(c.Image, ":latest") {
				t.Errorf("image %s was not replaced", c.Image)
			}
		}
		if name := o.Spec.Template.Spec.Volumes[0].ConfigMap.Name; !strings.HasPrefix(name, "otel-bridge-") {
			t.Errorf("the Pod's ConfigMap %q does not follow the content", name)
		}
	}
	if kinds["Deployment"] != 1 || kinds["PersistentVolumeClaim"] != 2 || kinds["ConfigMap"] != 1 {
		t.Errorf("built %v", kinds)
	}
}

const unitFile = "systemd/otel-bridge.service"

// unit is a unit file's [Service] section; of keys that repeat all values.
func unit(t *testing.T) map[string][]string {
	t.Helper()
	section, keys := "", map[string][]string{}
	for line := range strings.Lines(string(read(t, unitFile))) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = line
		case section == "[Service]":
			k, v, _ := strings.Cut(line, "=")
			keys[k] = append(keys[k], v)
		}
	}
	return keys
}

func TestUnitIsConfinedAndGivesTimeToStop(t *testing.T) {
	keys := unit(t)
	for k, want := range map[string]string{
		"StateDirectory": "otel-bridge", "StateDirectoryMode": "0700", "UMask": "0077",
		"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "read-only", "CapabilityBoundingSet": "",
		"PrivateTmp": "yes", "PrivateDevices": "yes", "MemoryDenyWriteExecute": "yes", "RestrictNamespaces": "yes",
		"RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6", "Restart": "always",
		"RestartPreventExitStatus": "2 78", // usage and configuration: nothing changes by trying again
	} {
		if got := keys[k]; len(got) != 1 || got[0] != want {
			t.Errorf("%s = %q, want %q", k, got, want)
		}
	}
	for _, k := range []string{"ReadWritePaths", "Environment"} {
		if len(keys[k]) > 0 {
			t.Errorf("%s = %q is not needed", k, keys[k])
		}
	}
	stop, err := strconv.Atoi(keys["TimeoutStopSec"][0])
	if err != nil || time.Duration(stop)*time.Second <= defaultShutdown {
		t.Errorf("TimeoutStopSec = %q, want more than %v", keys["TimeoutStopSec"], defaultShutdown)
	}
	if !strings.Contains(keys["ExecReload"][0], "-HUP") {
		t.Error("reload is SIGHUP")
	}
	// systemd does not complain about a capability that it does not know.
	dropIn := string(read(t, "systemd/own-user.conf"))
	for _, k := range []string{"CapabilityBoundingSet", "AmbientCapabilities"} {
		if !strings.Contains(dropIn, "\n"+k+"=CAP_DAC_READ_SEARCH\n") {
			t.Errorf("the drop-in's %s is not the one capability to read", k)
		}
	}
}

func TestSystemdUnderstandsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// It looks for the program; this one stands in for it.
	text := strings.ReplaceAll(string(read(t, unitFile)), "/usr/local/bin/otel-bridge", self)
	path := filepath.Join(t.TempDir(), "otel-bridge.service")
	dropIn := filepath.Join(path+".d", "own-user.conf")
	if err := os.Mkdir(filepath.Dir(dropIn), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{path: text, dropIn: string(read(t, "systemd/own-user.conf"))} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(analyze, "verify", path).CombinedOutput()
	if err != nil || strings.Contains(string(out), filepath.Dir(path)) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// collector is a Collector's configuration, as far as names go.
type collector struct {
	Extensions, Receivers, Processors, Exporters map[string]map[string]any
	Service                                      struct {
		Extensions []string
		Pipelines  map[string]struct{ Receivers, Processors, Exporters []string }
	}
}

func TestCollectorsNameTheirPartsAndKeepWhatTheyAccept(t *testing.T) {
	for _, name := range []string{"receive-from-bridge.yaml", "in-parallel.yaml"} {
		t.Run(name, func(t *testing.T) {
			c := documents[collector](t, name, read(t, "collector/"+name))[0]
			used := map[string]map[string]bool{"receiver": {}, "processor": {}, "exporter": {}, "extension": {}}
			use := func(kind string, defined map[string]map[string]any, names []string) {
				for _, n := range names {
					used[kind][n] = true
					if _, ok := defined[n]; !ok {
						t.Errorf("%s %s is used and not defined", kind, n)
					}
				}
			}
			use("extension", c.Extensions, c.Service.Extensions)
			for _, p := range c.Service.Pipelines {
				use("receiver", c.Receivers, p.Receivers)
				use("processor", c.Processors, p.Processors)
				use("exporter", c.Exporters, p.Exporters)
			}
			for kind, defined := range map[string]map[string]map[string]any{
				"receiver": c.Receivers, "processor": c.Processors, "exporter": c.Exporters, "extension": c.Extensions,
			} {
				for n := range defined {
					if !used[kind][n] {
						t.Errorf("%s %s is defined and not used", kind, n)
					}
				}
			}
			bridge, ok := c.Service.Pipelines["logs/bridge"]
			if !ok {
				t.Fatal("no pipeline logs/bridge")
			}
			// An answer of 200 makes the bridge forget: nothing may wait in memory.
			for _, p := range bridge.Processors {
				if p != "memory_limiter" {
					t.Errorf("processor %s stands between the bridge and the queue", p)
				}
			}
			for _, e := range bridge.Exporters {
				queue, _ := c.Exporters[e]["sending_queue"].(map[string]any)
				storage, _ := queue["storage"].(string)
				if !slices.Contains(c.Service.Extensions, storage) {
					t.Errorf("%s: the queue is not on disk", e)
				}
				retry, _ := c.Exporters[e]["retry_on_failure"].(map[string]any)
				if retry["max_elapsed_time"] != "0s" {
					t.Errorf("%s gives up and drops", e)
				}
			}
		})
	}
}

// instructions are a Dockerfile's, continued lines joined.
func instructions(t *testing.T) (out [][2]string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(string(read(t, "../Dockerfile"))) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	for _, line := range strings.Split(strings.ReplaceAll(strings.Join(lines, ""), "\\\n", " "), "\n") {
		if name, rest, ok := strings.Cut(line, " "); ok {
			out = append(out, [2]string{name, strings.Join(strings.Fields(rest), " ")})
		}
	}
	return out
}

func TestImageIsStaticStampedAndNotRoot(t *testing.T) {
	last := map[string]string{}
	build, copied := "", ""
	for _, i := range instructions(t) {
		if i[0] == "FROM" {
			last = map[string]string{}
			copied = ""
		}
		last[i[0]] = i[1]
		switch {
		case strings.Contains(i[1], "go build"):
			build = i[1]
		case i[0] == "COPY":
			copied += i[1] + "\n"
		}
		if strings.Contains(i[1], "golang:") && !strings.Contains(i[1], "golang:"+goVersion(t)+"-") {
			t.Errorf("%s is not the Go of go.mod", i[1])
		}
	}
	for _, want := range []string{"CGO_ENABLED=0", "-trimpath", "-buildvcs=true", "vcs.revision"} {
		if !strings.Contains(build, want) {
			t.Errorf("the build has no %s: %s", want, build)
		}
	}
	if last["FROM"] != "scratch" || !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(last["USER"]) {
		t.Errorf("the image is %s and runs as %s", last["FROM"], last["USER"])
	}
	if !strings.HasPrefix(last["ENTRYPOINT"], "[") || !strings.HasPrefix(last["CMD"], "[") {
		t.Error("there is no shell in the image")
	}
	if !strings.Contains(last["ENV"], "STATE_DIRECTORY=/var/lib/otel-bridge") || !strings.Contains(copied, "--chown="+last["USER"]) {
		t.Error("the data directory is not the user's")
	}
}

// goVersion is the language version of go.mod, such as 1.26.
func goVersion(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(read(t, "../go.mod"))
	if m == nil {
		t.Fatal("go.mod has no go line")
	}
	return string(m[1])
}

// A tracked file that does not come along makes the tree look changed, and the
// version say "+dirty".
func TestImageContextHasEveryTrackedFile(t *testing.T) {
	out, err := exec.Command("git", "-C", "..", "ls-files").Output()
	if err != nil {
		t.Skip("not a git checkout, or no git")
	}
	for line := range strings.Lines(string(read(t, "../.dockerignore"))) {
		pattern := strings.TrimSpace(line)
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		anywhere := strings.HasPrefix(pattern, "**/")
		pattern = strings.TrimPrefix(strings.TrimPrefix(pattern, "**/"), "/")
		if strings.ContainsAny(pattern, "/!") {
			t.Errorf("%s: teach this test to match it", pattern)
		}
		for file := range strings.Lines(string(out)) {
			parts := strings.Split(strings.TrimSpace(file), "/")
			if !anywhere {
				parts = parts[:1]
			}
			for _, p := range parts {
				if ok, err := filepath.Match(pattern, p); ok || err != nil {
					t.Errorf("%q leaves out %s (%v)", pattern, strings.TrimSpace(file), err)
				}
			}
		}
	}
}

// Queries name attributes as they are, or with _ for what Loki does not take.
func TestQueriesAskOnlyForAttributesThatExist(t *testing.T) {
	known := []string{"service.name", "service.instance.id"} // of the resource
	for _, m := range regexp.MustCompile("`([a-z_]+(?:\\.[a-z_]+)+)`").FindAllStringSubmatch(string(read(t, "../docs/mapping.md")), -1) {
		known = append(known, m[1])
	}
	flat := map[string]bool{"severity_text": true}
	for _, name := range known {
		flat[strings.ReplaceAll(name, ".", "_")] = true
	}
	asked := 0
	for _, m := range regexp.MustCompile(`Attributes\[?,? ?'([^']+)'`).FindAllStringSubmatch(string(read(t, "queries/clickhouse.md")), -1) {
		asked++
		if !slices.Contains(known, m[1]) {
			t.Errorf("clickhouse.md: there is no attribute %s", m[1])
		}
	}
	block := regexp.MustCompile("(?s)```logql\n(.*?)```")
	name := regexp.MustCompile(`\b(?:session|event|surface|otel_bridge|service|log|severity|gen_ai)_[a-z_]+\b`)
	filter := regexp.MustCompile(`\| (\w+) ?(?:=~|!=|=|>)`)
	for _, b := range block.FindAllStringSubmatch(string(read(t, "queries/loki.md")), -1) {
		names := name.FindAllString(b[1], -1)
		for _, f := range filter.FindAllStringSubmatch(b[1], -1) {
			names = append(names, f[1])
		}
		for _, n := range names {
			asked++
			if !flat[n] && !strings.HasPrefix(n, "otel_bridge_redactions_") {
				t.Errorf("loki.md: there is no attribute %s", n)
			}
		}
	}
	if asked < 20 {
		t.Errorf("%d names were read", asked)
	}
}

func TestExamplesAndPagesLinkToFilesThatExist(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	pages, err := filepath.Glob(filepath.FromSlash("../docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md", filepath.FromSlash("../README.md")) {
		for _, m := range link.FindAllStringSubmatch(string(read(t, page)), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
