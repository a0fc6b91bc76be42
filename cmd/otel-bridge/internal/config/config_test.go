package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

var update = flag.Bool("update", false, "write the expected files anew")

// testEnv is the whole environment of a test.
func testEnv(pairs ...string) func(string) (string, bool) {
	m := map[string]string{"SECRET_VARIABLE": "hunter2secret", "XDG_STATE_HOME": "/state"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) (string, bool) { v, ok := m[k]; return v, ok }
}

func load(t *testing.T, file string, o Options) *Config {
	t.Helper()
	o.File = file
	if o.LookupEnv == nil {
		o.LookupEnv = testEnv()
	}
	c, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEveryMistakeIsNamedWithItsPlace(t *testing.T) {
	t.Setenv("HOME", "/home/test")
	if err := os.Chmod("testdata/loose.pem", 0o644); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	if len(files) == 0 {
		t.Fatal("no cases")
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			_, err := Load(Options{File: f, LookupEnv: testEnv()})
			var ce *Error
			if !errors.As(err, &ce) {
				t.Fatalf("accepted: %v", err)
			}
			got := filepath.ToSlash(err.Error()) + "\n"
			if strings.Contains(got, "hunter2secret") {
				t.Errorf("a secret stands in the message:\n%s", got)
			}
			want := strings.TrimSuffix(f, ".yaml") + ".err"
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(w) {
				t.Errorf("got\n%swant\n%s", got, w)
			}
		})
	}
}

func TestReferencePageIsCurrent(t *testing.T) {
	page := filepath.Join("..", "..", "..", "..", "docs", "configuration.md")
	if *update {
		if err := os.MkdirAll(filepath.Dir(page), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(page, []byte(Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Reference() {
		t.Error("docs/configuration.md is not what the table of fields says; run this test with -update")
	}
}

func TestContractFileIsTheDefaults(t *testing.T) {
	t.Setenv("HOME", "/home/test")
	fromFile := load(t, "testdata/good/cli-md.yaml", Options{})
	bare := load(t, "", Options{})
	if fromFile.Redact.Engine.Hash() != bare.Redact.Engine.Hash() {
		t.Error("the engines differ")
	}
	if !reflect.DeepEqual(fromFile, bare) {
		t.Errorf("the file of defaults gives\n%+v\nno file gives\n%+v", fromFile, bare)
	}
	want := map[string]string{
		"mode": "DISABLED", "max_record_bytes": "1MiB", "max_line_bytes": "16MiB", "max_size": "10GiB", "dir": "/state/otel-bridge",
		"batch": "512 4MiB", "timeout": "10s", "idle": "30m0s", "shutdown": "25s", "listen": "127.0.0.1:8321", "sources": "/home/test/.dsh/sessions beginning",
		"policies": "[builtin:secrets builtin:pii]", "workers": "4", "compression": "gzip", "body": "structured", "scope": "lifetime", "divergence": "continue", "log": "INFO text",
	}
	got := map[string]string{
		"mode": fmt.Sprint(bare.Mode), "max_record_bytes": bare.MaxRecordBytes.String(), "max_line_bytes": bare.MaxLineBytes.String(),
		"max_size": bare.Outbox.MaxSize.String(), "dir": bare.Outbox.Dir,
		"batch":   fmt.Sprint(bare.Exporter.MaxBatch.Records, " ", bare.Exporter.MaxBatch.Bytes),
		"timeout": bare.Exporter.Timeout.String(), "idle": bare.SessionIdle.String(), "shutdown": bare.ShutdownTimeout.String(), "listen": bare.Admin.Listen,
		"sources":  bare.Sources[0].DSH.Path + " " + bare.Sources[0].DSH.StartAt,
		"policies": fmt.Sprint(bare.Redact.PolicyNames), "workers": fmt.Sprint(bare.Exporter.Workers), "compression": bare.Exporter.Compression, "body": bare.Exporter.Body,
		"scope": bare.FeedbackScope.String(), "divergence": string(bare.OnDivergence), "log": bare.Log.Level.String() + " " + bare.Log.Format,
	}
	for k, w := range want {
		if got[k] != w {
			t.Errorf("%s = %q, want %q", k, got[k], w)
		}
	}
}

func TestFileIsReadWithEnvironmentAndPathsExpanded(t *testing.T) {
	t.Setenv("HOME", "/home/test")
	c := load(t, "testdata/good/full.yaml", Options{})
	if c.Mode != telemetry.Full || !c.Redact.None || c.Exporter.MaxBatch.Records != 7 {
		t.Errorf("mode %v, none %v, records %d", c.Mode, c.Redact.None, c.Exporter.MaxBatch.Records)
	}
	wantSources := []Source{
		{DSH: DSHSource{Path: "/home/test/agents/sessions", StartAt: "now"}},
		{DSH: DSHSource{Path: "testdata/good/relative/sessions", StartAt: "beginning"}},
	}
	if !reflect.DeepEqual(c.Sources, wantSources) {
		t.Errorf("sources %+v", c.Sources)
	}
	if got := c.Exporter.Headers["authorization"].Reveal(); got != "Bearer hunter2secret" {
		t.Errorf("header %q", got)
	}
	if c.Exporter.Endpoint != "https://collector.example.com/v1/logs" {
		t.Errorf("endpoint %q", c.Exporter.Endpoint)
	}
	if c.Resource["literal"] != "${env:X}" {
		t.Errorf("literal %q", c.Resource["literal"])
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "redact: none") {
		t.Errorf("warnings %q", c.Warnings)
	}
	if s := fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Exporter.Headers); strings.Contains(s, "hunter2") {
		t.Error("a header value is printed")
	}
}

func TestFlagGoesBeforeEnvironmentBeforeFile(t *testing.T) {
	file := writeFile(t, "mode: FULL\nexporter: { endpoint: 'https://file.example.com', compression: none, timeout: 3s }\nresource: { service.name: file, a: file, b: file }\n")
	env := testEnv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://env.example.com/base/", "OTEL_EXPORTER_OTLP_COMPRESSION", "gzip",
		"OTEL_EXPORTER_OTLP_TIMEOUT", "2500", "OTEL_EXPORTER_OTLP_HEADERS", "x-a=1%2C2,x-b=3",
		"OTEL_RESOURCE_ATTRIBUTES", "service.name=attr,a=env%20a", "OTEL_SERVICE_NAME", "env")
	c := load(t, file, Options{LookupEnv: env})
	if c.Exporter.Endpoint != "https://env.example.com/base/v1/logs" || c.Exporter.Compression != "gzip" || c.Exporter.Timeout != 2500*time.Millisecond {
		t.Errorf("exporter %+v", c.Exporter)
	}
	if c.Exporter.Headers["x-a"].Reveal() != "1,2" || c.Exporter.Headers["x-b"].Reveal() != "3" {
		t.Error("headers of the environment are not read")
	}
	if want := map[string]string{"service.name": "env", "a": "env a", "b": "file"}; !reflect.DeepEqual(c.Resource, want) {
		t.Errorf("resource %v", c.Resource)
	}
	c = load(t, file, Options{LookupEnv: env, Overrides: []Override{{Key: "exporter.endpoint", Value: "http://127.0.0.1:9", From: "--endpoint"}}})
	if c.Exporter.Endpoint != "http://127.0.0.1:9/v1/logs" {
		t.Errorf("endpoint %q", c.Exporter.Endpoint)
	}
}

func TestPodIsOfTheEnvironmentInsideAClusterOnly(t *testing.T) {
	file := writeFile(t, "mode: FULL\nexporter: { endpoint: 'https://c.example.com' }\nresource: { k8s.node.name: file }\n")
	pod := []string{"POD_NAME", "agent-7d9", "POD_UID", "u-1", "POD_NAMESPACE", "prod", "NODE_NAME", "n1", "CONTAINER_NAME", "bridge",
		"OTEL_RESOURCE_ATTRIBUTES", "k8s.namespace.name=said"}
	c := load(t, file, Options{LookupEnv: testEnv(append(pod, "KUBERNETES_SERVICE_HOST", "10.0.0.1")...)})
	want := map[string]string{"k8s.pod.name": "agent-7d9", "k8s.pod.uid": "u-1", "k8s.namespace.name": "said", "k8s.node.name": "file", "k8s.container.name": "bridge"}
	if !reflect.DeepEqual(c.Resource, want) {
		t.Errorf("resource %v", c.Resource)
	}
	c = load(t, file, Options{LookupEnv: testEnv(pod...)})
	if want := map[string]string{"k8s.namespace.name": "said", "k8s.node.name": "file"}; !reflect.DeepEqual(c.Resource, want) {
		t.Errorf("outside a cluster: resource %v", c.Resource)
	}
}

func TestLogsEndpointOfTheEnvironmentIsUsedAsItIs(t *testing.T) {
	for in, want := range map[string]string{
		"http://localhost:4318/custom": "http://localhost:4318/custom",
		"http://localhost:4318":        "http://localhost:4318/",
		"http://localhost:4318/":       "http://localhost:4318/",
	} {
		c := load(t, "", Options{LookupEnv: testEnv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", in), Overrides: []Override{{Key: "mode", Value: "FULL", From: "--mode"}}})
		if c.Exporter.Endpoint != want {
			t.Errorf("%s gives %s, want %s", in, c.Exporter.Endpoint, want)
		}
	}
}

func TestUnknownModeFailsFirstWhereverItComesFrom(t *testing.T) {
	bad := writeFile(t, "sesion_idle: 3m\nmode: FULL\nexporter: { timeout: never }\n")
	for _, from := range []string{"--mode", "OTEL_BRIDGE_MODE"} {
		_, err := Load(Options{File: bad, LookupEnv: testEnv("OTEL_EXPORTER_OTLP_TIMEOUT", "x"), Overrides: []Override{{Key: "mode", Value: "EVERYTHING", From: from}}})
		var ce *Error
		if !errors.As(err, &ce) || len(ce.Problems) != 2 || ce.Problems[0].File != from || !strings.Contains(ce.Problems[0].Message, "not a mode") {
			t.Errorf("%s: %v", from, err)
		}
	}
}

func TestDisabledReadsNoTransportSetting(t *testing.T) {
	file := writeFile(t, "exporter: { nonsense: 1, endpoint: 'ftp://x', headers_file: /does/not/exist }\n")
	read := map[string]bool{}
	lookup := func(k string) (string, bool) {
		read[k] = true
		return testEnv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://evil.example.com")(k)
	}
	c, err := Load(Options{File: file, LookupEnv: lookup, Overrides: []Override{{Key: "exporter.endpoint", Value: "ftp://y", From: "--endpoint"}}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Exporter.Endpoint != "" {
		t.Errorf("endpoint %q", c.Exporter.Endpoint)
	}
	for k := range read {
		if strings.HasPrefix(k, "OTEL_") {
			t.Errorf("%s was read", k)
		}
	}
	if _, err := Load(Options{File: file, LookupEnv: lookup, AllSections: true}); err == nil {
		t.Error("AllSections does not look at the exporter")
	}
}

func TestPlaintextIsForLoopbackUnlessSaid(t *testing.T) {
	for host, ok := range map[string]bool{
		"http://localhost:1": true, "http://127.9.9.9": true, "http://[::1]:4318": true, "https://example.com": true,
		"http://localhost.example.com": false, "http://10.0.0.1": false, "http://0.0.0.0:4318": false, "http://127.0.0.1.example.com": false,
	} {
		ov := []Override{{Key: "mode", Value: "FULL"}, {Key: "exporter.endpoint", Value: host, From: "--endpoint"}}
		_, err := Load(Options{LookupEnv: testEnv(), Overrides: ov})
		if (err == nil) != ok {
			t.Errorf("%s: %v", host, err)
		}
		_, err = Load(Options{LookupEnv: testEnv(), Overrides: append(ov, Override{Key: "exporter.allow_plaintext", Value: "true"})})
		if err != nil {
			t.Errorf("%s with allow_plaintext: %v", host, err)
		}
	}
}

func TestGrpcOfTheEnvironmentIsRefusedOnlyWithItsEndpoint(t *testing.T) {
	ov := []Override{{Key: "mode", Value: "FULL"}}
	_, err := Load(Options{LookupEnv: testEnv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317"), Overrides: ov})
	if err == nil || !strings.Contains(err.Error(), "http/protobuf") {
		t.Errorf("grpc endpoint accepted: %v", err)
	}
	c, err := Load(Options{LookupEnv: testEnv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), Overrides: append(ov, Override{Key: "exporter.endpoint", Value: "http://localhost:1"})})
	if err != nil || len(c.Warnings) != 1 {
		t.Errorf("own endpoint: %v %v", c, err)
	}
}

func TestHeadersFileGoesBeforeHeaders(t *testing.T) {
	dir := t.TempDir()
	hf := filepath.Join(dir, "headers")
	if err := os.WriteFile(hf, []byte("# credentials\n\nAuthorization: Basic abc:def\nx-b:2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cf := filepath.Join(dir, "c.yaml")
	text := "mode: FULL\nexporter: { endpoint: 'http://localhost:1', headers_file: headers, headers: { authorization: other, x-a: '1' } }\n"
	if err := os.WriteFile(cf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := load(t, cf, Options{})
	got := map[string]string{}
	for _, n := range c.Exporter.HeaderNames() {
		got[n] = c.Exporter.Headers[n].Reveal()
	}
	if want := map[string]string{"authorization": "Basic abc:def", "x-a": "1", "x-b": "2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("headers %v", got)
	}
}

func TestSizesReadAsTheyPrint(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "512": 512, "1B": 1, "64KiB": 64 << 10, "1MiB": 1 << 20, "10GiB": 10 << 30, "2TiB": 2 << 40, "1kB": 1000, "3MB": 3e6, "1 GiB": 1 << 30} {
		got, err := ParseSize(in)
		if err != nil || int64(got) != want {
			t.Errorf("%s = %d, %v", in, got, err)
		}
		if back, err := ParseSize(got.String()); err != nil || back != got {
			t.Errorf("%s prints as %s, which reads as %d, %v", in, got, back, err)
		}
	}
	for _, in := range []string{"", "-1", "1.5MiB", "MiB", "1 M", "9223372036854775807KiB", "0x10", "1Mib"} {
		if n, err := ParseSize(in); err == nil {
			t.Errorf("%q read as %d", in, n)
		}
	}
}

func TestDataDirectoryDefaultsInOrder(t *testing.T) {
	t.Setenv("HOME", "/home/test")
	for _, c := range []struct{ state, xdg, want string }{
		{"/var/lib/otel-bridge:/var/lib/other", "/x", "/var/lib/otel-bridge"},
		{"", "/x", "/x/otel-bridge"},
		{"", "relative", "/home/test/.local/state/otel-bridge"},
		{"", "", "/home/test/.local/state/otel-bridge"},
	} {
		got, err := DefaultDataDir(testEnv("STATE_DIRECTORY", c.state, "XDG_STATE_HOME", c.xdg))
		if err != nil || got != c.want {
			t.Errorf("%+v gives %s, %v", c, got, err)
		}
	}
}

func FuzzLoadNeverPanicsOrLeaksTheEnvironment(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "hunter2") {
			t.Skip("the text itself holds what must not be printed")
		}
		p := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(Options{File: p, LookupEnv: testEnv()})
		if err != nil && strings.Contains(err.Error(), "hunter2secret") {
			t.Errorf("the environment is printed: %v", err)
		}
	})
}

func TestColonWithoutBlankDoesNotSeparate(t *testing.T) {
	c := load(t, writeFile(t, "redact: { policies: [builtin:pii, builtin:secrets] }\n"), Options{})
	if want := []string{"builtin:pii", "builtin:secrets"}; !reflect.DeepEqual(c.Redact.PolicyNames, want) {
		t.Errorf("policies %q", c.Redact.PolicyNames)
	}
}

func TestACredentialInAFileForAllToReadIsWarnedOf(t *testing.T) {
	if !checksPermissions {
		t.Skip("a file's mode does not say who may read it")
	}
	for header, warned := range map[string]bool{
		`authorization: "Bearer cred-1234"`: true, `X-Api-Key: cred-1234`: true, `DD-API-KEY: cred-1234`: true,
		`authorization: "Bearer ${env:TOKEN}"`: false, `x-scope-orgid: cred-1234`: false,
	} {
		for mode, open := range map[os.FileMode]bool{0o600: false, 0o640: true, 0o644: true} {
			file := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(file, []byte("mode: FULL\nexporter: { endpoint: 'http://localhost:1', headers: { "+header+" } }\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
			c, err := Load(Options{File: file, LookupEnv: testEnv("TOKEN", "cred-1234")})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(c.Warnings, "\n"); (got != "") != (warned && open) || strings.Contains(got, "cred-1234") {
				t.Errorf("%s, mode %#o: %q", header, mode, got)
			}
		}
	}
}

func TestAByteOrderMarkIsSteppedOver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("\uFEFFmode: FULL\nexporter: { endpoint: 'http://localhost:1' }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := load(t, file, Options{}); c.Mode != telemetry.Full {
		t.Error(c.Mode)
	}
}

func TestWhatAVariableHeldIsNotShownForAnAddress(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("admin: { listen: '${env:ADDRESS}' }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(Options{File: file, LookupEnv: testEnv("ADDRESS", "held-by-a-variable")})
	if err == nil || !strings.Contains(err.Error(), "1:18: admin.listen: is not host:port") || strings.Contains(err.Error(), "held-by") {
		t.Errorf("%v", err)
	}
}

func TestAPortThatThereIsNotIsRefused(t *testing.T) {
	for port, ok := range map[string]bool{"1": true, "65535": true, "65536": false, "99999": false, "0": false, "99999999999999999999": false} {
		ov := []Override{{Key: "mode", Value: "FULL"}, {Key: "exporter.endpoint", Value: "http://localhost:" + port, From: "--endpoint"}}
		if _, err := Load(Options{LookupEnv: testEnv(), Overrides: ov}); (err == nil) != ok {
			t.Errorf("port %s: %v", port, err)
		}
	}
}
