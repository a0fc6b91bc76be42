package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// leaves lists the texts of a JSON value: strings, keys, numbers, JSON inside
// strings, and the strings of one array, or of one key in an array's objects,
// put together.
func leaves(v any, out *[]string) {
	switch v := v.(type) {
	case string:
		*out = append(*out, v)
		var n any
		if len(v) > 1 && strings.ContainsAny(v[:1], `{["`) && json.Unmarshal([]byte(v), &n) == nil {
			leaves(n, out)
		}
	case json.Number:
		*out = append(*out, v.String())
	case []any:
		var all []string
		by := map[string][]string{}
		for _, x := range v {
			leaves(x, out)
			switch x := x.(type) {
			case string:
				all = append(all, x)
			case map[string]any:
				for k, y := range x {
					if s, ok := y.(string); ok {
						by[k] = append(by[k], s)
					}
				}
			}
		}
		*out = append(*out, strings.Join(all, ""))
		for _, s := range by {
			*out = append(*out, strings.Join(s, ""))
		}
	case map[string]any:
		for k, x := range v {
			*out = append(*out, k)
			leaves(x, out)
		}
	}
}

// survives reports whether value is in the JSON text in any form.
func survives(t *testing.T, doc []byte, value string) bool {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("the output is not JSON: %v", err)
	}
	var texts []string
	leaves(v, &texts)
	hay := strings.Join(texts, "\x00") + "\x00" + string(doc)
	esc, _ := json.Marshal(value)
	inner := string(esc[1 : len(esc)-1])
	esc2, _ := json.Marshal(inner)
	forms := []string{value, inner, string(esc2[1 : len(esc2)-1]), url.QueryEscape(value), url.PathEscape(value)}
	for shift := 0; shift < 3; shift++ {
		b := base64.StdEncoding.EncodeToString(append(make([]byte, shift), value...))
		from, to := (shift*4+2)/3, (shift+len(value))*4/3
		if to-from >= 8 {
			forms = append(forms, b[from:to])
		}
	}
	for _, f := range forms {
		if len(f) >= 6 && strings.Contains(hay, f) {
			return true
		}
	}
	return false
}

func TestNoPlantedSecretSurvivesInTheLabSessions(t *testing.T) {
	e := builtin(t)
	raw, err := os.ReadFile(sharedFile(t, "data/dsh/planted.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	type planted struct {
		Kind, Value string
		Default     bool
	}
	var all []planted
	for _, l := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		var p planted
		if err := json.Unmarshal([]byte(l), &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(sharedFile(t, "data/dsh/planted.jsonl")), "*", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	sort.Strings(files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range bytes.Split(text, []byte("\n")) {
			if raceDetector && n%10 != 0 || !json.Valid(line) {
				continue
			}
			out, _, err := e.JSON(nil, line)
			if err != nil {
				t.Fatalf("%s:%d: %v", filepath.Base(f), n+1, err)
			}
			for _, p := range all {
				if p.Default && survives(t, out, p.Value) {
					t.Errorf("%s:%d: %s survives", f, n+1, p.Kind)
				}
			}
			if !strings.Contains(f, "secrets") && bytes.Contains(out, []byte("[REDACTED:")) && testing.Verbose() {
				t.Logf("%s:%d: %s", f, n+1, out)
			}
		}
	}
}
