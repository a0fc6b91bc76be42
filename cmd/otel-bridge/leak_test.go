//go:build unix

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// plantedTexts are kinds of secrets: the kind, the text in which it stands with
// % for the value, the value. All are fakes.
var plantedTexts = strings.Split(strings.TrimSpace(`
github pat|use % now|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
github fine-grained|use % now|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
gitlab pat|use % now|glpat-DdaXaoxdhqrR0LrVo34s
gitlab runner|use % now|glrt-fS5JdI3C5gZVBzKGoKFb
openai|use % now|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
anthropic|use % now|sk-ant-api03-m8LcIvzSi1-qLGK2MNUpjuREtbr6oEZOq4ZgoliUaZySZQEF0vRd9isHb3tRfLLuZKg9J38f69WGwD6-0atz94TAqyYbMAA
openrouter|use % now|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
deepseek|use % now|sk-e0344e10c1e7ebc5407cf1cdb248a724
groq|use % now|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
huggingface|use % now|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
replicate|use % now|r8_pPExCeCygEjJiiVgiM9weFouN8iC5Qxq9GYl8
xai|use % now|xai-J9rBRWPFZp2gIspkTpem2LShpQbvyxVTNSWzcFgCzG9J0ZrRhVjjNVr0wCUn9WnUgtYewmrxrmkUOESH
perplexity|use % now|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
slack bot|use % now|xoxb-745550887470-9457988007315-77pjSxRGDzUnOfrBbPY52jwR
slack app|use % now|xapp-1-AMENTUE039H-4712377848303-a995fdd8c2c954fc714bca072bf3c3cdba02d35bca08d41b085e61fb7e867ab6
slack webhook|post to %|https://hooks.slack.com/services/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
discord webhook|post to %|https://discord.com/api/webhooks/3471566403243056624/Axk1TXXbjMAQ0_2pbLModsnucEVbONUZq9tYozzANfGytD2tWmEDs_ponoNAMPLiJBlx
telegram bot|use % now|4213718432:AAphLQOAU4Q4v6LGMDOPX2dBYDVdm7bbGDU
stripe|use % now|sk_live_TWqc1AeJP20GZxOz4cUf0k80
stripe webhook|use % now|whsec_t6wQw7Feh1niESCRQE0cFErdYubxFqSC
square|use % now|sq0atp-vfXUCQFnwyAVmZkTXXiU9m
shopify|use % now|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
twilio|use % now|SK469d401321a5fdf7cf278df069b858a0
sendgrid|use % now|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
mailgun|use % now|key-13eaf6cd102e5a6eb55ce39c02598606
mailchimp|use % now|68b9ec62868ba02d292857930df95509-us18
npm|use % now|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
pypi|use % now|pypi-AgEIcHlwaS5vcmcCNXsidiI6IDEsICJ1IjogImVmMGZjMzRmLTM0NWEtNDgzOC1hYjkzLTJkZDAxN2NlZjA0ZiJ9AAIrWzEsICI5NzJmZTI5YS1jNTQ2
rubygems|use % now|rubygems_1cf938795b12aafc0b7b2a6db4b36727eb9fafee14f6a1ce
crates.io|use % now|ciodglTSqZQ8Y5SXWyP2lF5J95UlcOeV1M1
docker hub|use % now|dckr_pat_IleuZSvL5CLLvb5FSQybd-LrQ5d
aws key id|use % now|AKIAM3ISVNWS2EXTD4BR
aws secret|AKIAM3ISVNWS2EXTD4BR and %|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
google api|use % now|AIzaSyEWmjq7yh0fOIPJweBsqFq6ip6tAs8xReU
google oauth|use % now|ya29.a0sLu_QFmvV5EBpFd90Deurc8y3qorJnCgPAn-sWodvU9WjwaqrqST-N8c-mKZ2
google secret|use % now|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
azure client secret|use % now|htU0Q~1IG99qET4FvMvxlUw.G6_tFkdCRt~YOrR9
azure storage|AccountName=x;AccountKey=%;EndpointSuffix=core|qXnetVQh5oLo17l7QNhLfEfPR/LBJ/tCnIdKEl4UiqL7YfmSa6igX4DzErclZ3qCXnM4Ud7TWLNRlZga37numA==
digitalocean|use % now|dop_v1_d53a227812dbd067c308a6723a7592147fd99343e18a838d7ab1827bd549a8a6
databricks|use % now|dapi68f220a8ebe0901317dea6334d164d3f
doppler|use % now|dp.pt.BPlAmNL4q3aYTx2OxM70rfIS3inImiQzwLjpcmFHgK3
vault|use % now|hvs.Q97q6TaEK8BT5PEGu637OgDwsCrpiN_ExgrlqPunwkjoJpdgSGiGlU7xAU9uj73w-O0enxfSQd5y-8EQ9zSrDIxTE2JEhZ2
terraform|use % now|VIiOxysTCuMEO9.atlasv1.j3kca8DFo4M5rvFabk30lIgaDd54gPG320xOlvSfm8Rgd6hrj8ZCuGL9oM-aWCFPwWY
notion|use % now|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
linear|use % now|lin_api_joAOS0C9Wt3PEGoBog0831HtYJZdIhOCTlybGu8a
figma|use % now|figd_Aj2ic31nGiWMBXzTJZX5sYePj7T3w_IxKg1QDNd_
grafana|use % now|glsa_Ib1EG6pYfN3Gui65jgqmQ84KJ66y2kLP_174c9665
new relic|use % now|NRAK-QAC1LTWMIU7NGWELMFV0HMNJAM2
postman|use % now|PMAK-cb6b31cf2da62907b63ee192-b27c51dcf047516348c847d03bc2af6420
pulumi|use % now|pul-cc5b3c6862ec450632ed7cbaa17e562dfea330c3
sentry|use % now|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
age|use % now|AGE-SECRET-KEY-1TSNM8227HX6PRWENVG3N5JE5PP5PJ4W3CRRSS3X9M0A2T3JH440QNHPZQ0
jwt|use % now|eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIwZDZiYWZjNC0xYzBiLTQ4YTMtYTkxNC1iMzUzMzJiOTVkYzciLCJpYXQiOjE3NjUwODA5NTJ9.GWTj1fV-1gAWfYzWg9XsB2nV8l8sSGkDxzldlhhziO8
bearer|Authorization: Bearer %|yYrYSAf-44b9tzTnjkJdYXnK9d3H9iZpwULaqtqZxrorU5vRQS8x
password in a URL|postgres://app:%@db.example.com/x|43GdpgkNXkVY1J6s
environment|DB_PASSWORD=%|C7bOgI-AuONqRi_GDNo!n
sshpass|sshpass -p '%' ssh x|yhgUR%c+M4yqiv.kt
netrc|machine git.example.com login bob password %|xkqw!QZ7hJ1^B
cookie|Cookie: theme=dark; session=%; lang=en|gsfkd22lfMBqkA9wYFolapjmveAhkivLkRF4KbX1
created user|CREATE USER bob IDENTIFIED BY '%';|Zr8!vnWq2+pLx0
e-mail|write to % please|jane.doe+leak@example.com
card|card % expired|4242 4242 4242 4242
iban|pay to % today|GB82 WEST 1234 5698 7654 32
ssn|ssn % on file|078-05-1120
phone|call % today|+1 (555) 010-0199
`), "\n")

// refuse stands in a row of some sessions; the receiver refuses records that
// hold it.
const refuse = "zzrefused"

// plantable says which strings of an event hold what a person, a model or a
// tool has written: those are planted. The others are the event's structure.
func plantable(path []string) bool {
	last := path[len(path)-1]
	if last == "[]" {
		last = path[len(path)-2]
	}
	switch last {
	case "text", "texts", "args", "arguments", "title", "cwd", "system", "description", "label", "note", "message", "diff", "path", "content", "name",
		"summary", "rawOutput", "command", "model", "provider", "code", "agentPreset", "policyKey", "preset":
	default:
		return false
	}
	for _, p := range path {
		if p == "reason" && last != "message" || p == "parameters" || p == "config" {
			return false
		}
	}
	// Names of tools and blocks have to agree with one another.
	return last != "name" || strings.Contains(strings.Join(path, "."), "attachment") || strings.Contains(strings.Join(path, "."), "sections")
}

// planter plants the kinds in turn.
type planter struct {
	next   int
	places map[string]bool
}

func (p *planter) text() string {
	f := strings.SplitN(plantedTexts[p.next%len(plantedTexts)], "|", 3)
	p.next++
	return strings.Replace(f[1], "%", f[2], 1)
}

func (p *planter) plant(v any, typ string, path []string) any {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			v[k] = p.plant(v[k], typ, append(path, k))
		}
	case []any:
		last := path[len(path)-1]
		if (last == "texts" || last == "args") && len(v) > 1 {
			// A stream: the secret lies over two of its pieces.
			a, okA := v[0].(string)
			b, okB := v[1].(string)
			if okA && okB {
				s := p.text()
				half := len(s) / 2
				v[0], v[1] = a+" "+s[:half], s[half:]+" "+b
				p.places[typ+" "+strings.Join(path, ".")+" (split)"] = true
			}
			return v
		}
		for i := range v {
			v[i] = p.plant(v[i], typ, append(path, "[]"))
		}
	case string:
		if !plantable(path) {
			return v
		}
		p.places[typ+" "+strings.Join(path, ".")] = true
		s := p.text()
		last := path[len(path)-1]
		var args map[string]any
		switch {
		case last == "arguments" && json.Unmarshal([]byte(v), &args) == nil:
			args["planted"] = s
			args[s] = "as a key"
			b, err := json.Marshal(args)
			if err != nil {
				return v
			}
			return string(b)
		case last == "cwd":
			return v + "/" + s
		}
		return v + "\n" + s
	}
	return v
}

// plantedSessions writes one session for each kind from a recorded one, so that
// each kind stands in each of its fields once.
func plantedSessions(t *testing.T, dir, template string, n int) (files []string, places map[string]bool) {
	t.Helper()
	raw, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	places = map[string]bool{}
	for i := range n {
		p := &planter{next: i, places: places}
		var out bytes.Buffer
		for row, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
			var ev map[string]any
			dec := json.NewDecoder(bytes.NewReader(line))
			dec.UseNumber()
			if err := dec.Decode(&ev); err != nil {
				t.Fatal(err)
			}
			typ, _ := ev["type"].(string)
			if row == 0 {
				id, _ := ev["id"].(string)
				ev["id"] = fmt.Sprintf("%s-%d", id, i)
				delete(ev, "parentSession")
			}
			p.plant(ev, typ, nil)
			if data, ok := ev["data"].(map[string]any); ok && typ == "session/title" && i%16 == 0 {
				data["title"] = fmt.Sprint(data["title"], " ", refuse)
			}
			b, err := json.Marshal(ev)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(append(b, '\n'))
		}
		path := filepath.Join(dir, fmt.Sprintf("%s-%d.jsonl", strings.TrimSuffix(filepath.Base(template), ".jsonl"), i))
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	return files, places
}

// echoing is a receiver that keeps what it gets and, where it refuses, says
// what it got.
type echoing struct {
	mu   sync.Mutex
	got  bytes.Buffer
	hang chan struct{} // if set, requests wait for it
	seen chan struct{}
}

func (e *echoing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	if err != nil {
		http.Error(w, "unreadable", http.StatusInternalServerError)
		return
	}
	e.mu.Lock()
	e.got.Write(body)
	e.mu.Unlock()
	if e.hang != nil {
		select {
		case e.seen <- struct{}{}:
		default:
		}
		<-e.hang
	}
	if bytes.Contains(body, []byte(refuse)) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// TestNoKindLeaksFromAnyFieldOfASession plants every kind in every field that
// holds text of sessions of several versions, and looks for them in what was
// sent, in the data directory with its quarantine, in the listings, on stderr
// and in a crash's dump.
func TestNoKindLeaksFromAnyFieldOfASession(t *testing.T) {
	shared, ok := sharedDir()
	if !ok {
		t.Skip("the recorded sessions stand beside the project")
	}
	list := plantedKinds()
	n := len(list)
	want := n * 10_000
	if testing.Short() {
		n, want = 4, 40_000
	}
	dir := t.TempDir()
	var files []string
	places := map[string]bool{}
	for i, name := range []string{"v4/native-v4.jsonl", "v2/lab-compaction.jsonl", "v2/orig-open.jsonl"} {
		if i > 0 {
			n = min(n, 4) // other versions have the same fields under other names
		}
		fs, ps := plantedSessions(t, dir, filepath.Join(shared, "data", "dsh", name), n)
		files = append(files, fs...)
		for p := range ps {
			places[p] = true
		}
	}
	if len(list) < 60 || len(places) < 25 {
		t.Fatalf("%d kinds in %d places", len(list), len(places))
	}
	t.Logf("%d kinds in %d places, %d sessions", len(list), len(places), len(files))
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(leaks(raw, list)) < 20 {
		t.Fatal("the check does not find what was planted")
	}

	bin := buildProgram(t, "")
	program := func(args ...string) (string, string) {
		cmd := exec.Command(bin, args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run() // the exit code says that records were refused
		return stdout.String(), stderr.String()
	}
	look := func(where string, text []byte) {
		for _, l := range leaks(text, list) {
			t.Errorf("%s: %s", where, l)
		}
	}

	srv := &echoing{}
	receiver := httptest.NewServer(srv)
	defer receiver.Close()
	data := filepath.Join(dir, "data")
	stdout, stderr := program(append([]string{"export", "--mode", "FULL", "--endpoint", receiver.URL, "--data-dir", data, "--output", "json"}, files...)...)
	if !strings.Contains(stdout, `"quarantined":`) || strings.Contains(stdout, `"quarantined":0,`) || strings.Contains(stdout, `"refused":`) && !strings.Contains(stdout, `"refused":0,`) {
		t.Errorf("the sessions were not exported as meant: %s\n%s", stdout, clip([]byte(stderr)))
	}
	if srv.got.Len() < want || !bytes.Contains(srv.got.Bytes(), []byte("[REDACTED:")) {
		t.Errorf("only %d bytes arrived", srv.got.Len())
	}
	t.Logf("%d bytes arrived", srv.got.Len())
	look("sent", srv.got.Bytes())
	look("stdout and stderr", []byte(stdout+stderr))
	err = filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		look("data directory, "+d.Name(), text)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{{"outbox", "list", "--output", "json"}, {"outbox", "list"}, {"outbox", "quarantine", "list"}, {"outbox", "quarantine", "list", "--output", "json"}, {"outbox", "status", "--output", "json"}, {"sessions", "list"}} {
		stdout, stderr := program(append(args, "--data-dir", data)...)
		if stdout == "" {
			t.Errorf("%v lists nothing: %s", args, stderr)
		}
		look(strings.Join(args, " "), []byte(stdout+stderr))
	}

	// A receiver that never answers, and the signal that makes Go dump all
	// stacks.
	stuck := &echoing{hang: make(chan struct{}), seen: make(chan struct{}, 1)}
	waiting := httptest.NewServer(stuck)
	defer waiting.Close()
	defer close(stuck.hang)
	cmd := exec.Command(bin, append([]string{"export", "--mode", "FULL", "--endpoint", waiting.URL, "--data-dir", filepath.Join(dir, "data2")}, files...)...)
	var dump bytes.Buffer
	cmd.Stderr, cmd.Stdout = &dump, &dump
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-stuck.seen:
	case <-time.After(time.Minute):
		t.Error("no request came")
	}
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("SIGQUIT did not end the program")
	}
	look("the dump of SIGQUIT", dump.Bytes())
}

// plantedKinds are the kinds of secrets as the checks for leaks take them.
func plantedKinds() (list []planted) {
	for _, l := range plantedTexts {
		f := strings.SplitN(l, "|", 3)
		list = append(list, planted{Kind: f[0], Value: f[2], Default: true})
	}
	return list
}

// TestNoKindLeaksFromARunningSidecar looks at what a sidecar shows of sessions
// with all kinds of secrets while it runs, and at what it leaves when it is
// killed by a signal that dumps every stack and register.
func TestNoKindLeaksFromARunningSidecar(t *testing.T) {
	shared, ok := sharedDir()
	if !ok {
		t.Skip("the recorded sessions stand beside the project")
	}
	list := plantedKinds()
	r := newRig(t)
	n := len(list)
	if testing.Short() {
		n = 4
	}
	files, _ := plantedSessions(t, r.dir, filepath.Join(shared, "data", "dsh", "v4", "native-v4.jsonl"), n)
	for i, f := range files {
		to := r.path(fmt.Sprint("s", i))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(f, to); err != nil {
			t.Fatal(err)
		}
	}
	look := func(where, text string) {
		t.Helper()
		if text == "" {
			t.Errorf("%s: nothing is there", where)
		}
		for _, l := range leaks([]byte(text), list) {
			t.Errorf("%s: %s", where, l)
		}
	}
	r.start()
	r.poll("records of every session", func() bool {
		sessions := map[any]bool{}
		for _, rec := range r.received() {
			if id := rec.Attrs["session.id"]; id != nil {
				sessions[id] = true
			}
		}
		return len(sessions) == n && r.metric(`otel_bridge_records{state="pending"}`) == 0
	})
	metrics := r.page("/metrics")
	if !strings.Contains(metrics, "otel_bridge_redactions_total{") {
		t.Errorf("the metrics tell of no redaction: %.2000s", metrics)
	}
	look("/metrics", metrics)
	look("/readyz", r.page("/readyz"))
	look("/healthz", r.page("/healthz"))
	for _, args := range [][]string{{"status", "--output", "json"}, {"status"}} {
		out, err := exec.Command(program(t), append(args, "--data-dir", r.data())...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, clip(out))
		}
		look(strings.Join(args, " "), string(out))
	}
	r.kill()
	look("the log", string(r.log.bytes()))

	// Again, from the start, and aborted in the middle of its work.
	if err := os.RemoveAll(r.data()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOTRACEBACK", "system")
	r.start()
	r.poll("a record is read", func() bool { return r.metric(`otel_bridge_records_total{state="committed"}`) > 0 })
	if err := r.cmd.Process.Signal(syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.done:
	case <-time.After(r.patience):
		t.Fatal("SIGABRT did not end the program")
	}
	dump := string(r.log.bytes())
	if !strings.Contains(dump, "SIGABRT") || !strings.Contains(dump, "goroutine ") {
		t.Errorf("there is no dump: %s", clip([]byte(dump)))
	}
	look("the dump of SIGABRT", dump)
}
