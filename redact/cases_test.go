package redact_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// wrap puts text into JSON strings, one inside the other, depth times.
func wrap(t testing.TB, text string, depth int) string {
	t.Helper()
	for i := 0; i < depth; i++ {
		b, err := json.Marshal(map[string]string{"output": text})
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	return text
}

func TestGitleaksOwnCasesAreFoundInEachForm(t *testing.T) {
	f, err := os.Open(sharedFile(t, "data/redaction/secrets-cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type one struct {
		Rule, Path, Text string
		Secret           bool
	}
	e := builtin(t)
	var cases []one
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var c one
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	for depth, form := range []string{"text", "JSON string", "", "JSON in JSON in a string"} {
		if form == "" {
			continue
		}
		total, found, own := 0, 0, 0
		for i, c := range cases {
			if raceDetector && i%10 != 0 {
				continue
			}
			in := wrap(t, c.Text, depth)
			var out []byte
			var counts map[string]int
			if depth == 0 {
				o, rep, err := e.Text(nil, in)
				if err != nil {
					t.Fatal(err)
				}
				out, counts = o, rep.Counts
			} else {
				o, rep, err := e.JSON(nil, []byte(in))
				if err != nil {
					t.Fatal(err)
				}
				out, counts = o, rep.Counts
			}
			if !c.Secret {
				if counts[c.Rule] > 0 {
					t.Errorf("%s: %s hits its own negative %q: %s", form, c.Rule, c.Text, out)
				}
				continue
			}
			total++
			if strings.Contains(string(out), "[REDACTED:") {
				found++
			} else if testing.Verbose() {
				t.Logf("%s: missed %s %q", form, c.Rule, c.Text)
			}
			if counts[c.Rule] > 0 {
				own++
			}
		}
		t.Logf("%s: %d of %d found (%.2f %%), %d under the rule's own id", form, found, total, 100*float64(found)/float64(total), own)
		if float64(found) < 0.995*float64(total) {
			t.Errorf("%s: %d of %d found", form, found, total)
		}
	}
}
