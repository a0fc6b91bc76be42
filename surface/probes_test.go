package surface_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// TestAcceptanceProbesOfTheSurface makes one change each to orig-swap and
// behaves as DSH-FORMAT-V3-V4 §6 says, as far as the surface has a say: where
// its table has the version 4 codec lenient and the Session check refuse, both
// are asked here.
func TestAcceptanceProbesOfTheSurface(t *testing.T) {
	const (
		refused  = "refused"
		accepted = "accepted"
	)
	row := func(seq int, typ, data, more string) string {
		return fmt.Sprintf(`{"type":%q,"seq":%d,"time":1790000000000,"data":%s%s}`, typ, seq, data, more)
	}
	developer := func(more, blocks string) string {
		return row(80, "developer/message", `{"turn":4,"step":1`+more+`,"message":{"id":"d","role":"developer","source":{"kind":"tool-registry"},"content":[`+blocks+`]}}`, `,"surfaceOp":"append"`)
	}
	for _, c := range []struct {
		name       string
		seq        int
		find, text string // text replaces find, or the whole row where find is ""
		v3, v4     string // "", accepted, refused or the code that refuses
	}{
		{"replace with start and end", 12, `"startSeq":8,"endSeq":8`, `"start":8,"end":8`, refused, refused},
		{"assistant with sources", 21, `"surfaceOp":"append"`, `"surfaceOp":"append","sourceEventSeqs":[9]`, refused, refused},
		{"empty sources", 41, `"surfaceOp":"append"`, `"surfaceOp":"append","sourceEventSeqs":[]`, refused, refused},
		{"replacement omits a shadowed node", 54, `[52,53,9,11,21,23]`, `[52,53,9,21,23]`, "replace-uncited", "replace-uncited"},
		{"packed sources", 54, `[52,53,9,11,21,23]`, `[[9,23],52,53]`, accepted, accepted},
		{"user message over the head", 54, `"startSeq":9`, `"startSeq":42`, "replace-uncited", "replace-uncited"},
		{"user message over the cited head", 54, `"sourceEventSeqs":[52,53,9,11,21,23],"surfaceOp":{"op":"replace","startSeq":9`,
			`"sourceEventSeqs":[52,53,42,9,11,21,23],"surfaceOp":{"op":"replace","startSeq":42`, "head-protected", "head-protected"},
		{"start behind end", 54, `"startSeq":9,"endSeq":23`, `"startSeq":23,"endSeq":9`, "replace-order", "replace-order"},
		{"replace of what was replaced", 61, `"startSeq":42,"endSeq":42`, `"startSeq":12,"endSeq":42`, "replace-not-current", "replace-not-current"},
		{"rewrite of another call", 81, `"startSeq":46,"endSeq":46`, `"startSeq":79,"endSeq":79`, "replace-uncited", "replace-uncited"},
		{"rewrite of another cited call", 81, `"sourceEventSeqs":[46],"surfaceOp":{"op":"replace","startSeq":46,"endSeq":46}`,
			`"sourceEventSeqs":[79],"surfaceOp":{"op":"replace","startSeq":79,"endSeq":79}`, "rewrite-content", "rewrite-content"},
		{"rewrite of the step", 81, `"turn":2,"step":1`, `"turn":2,"step":2`, "rewrite-content", "rewrite-content"},
		{"unknown block in a user message", 41, `"content":[`, `"content":[{"type":"acme"},`, accepted, accepted},
		{"unknown ignorable type", 80, "", row(80, "acme/x", `{}`, `,"ignorable":true`), accepted, accepted},
		{"developer message", 80, "", developer("", `{"type":"tool-removal","toolName":"read"}`), refused, accepted},
		{"developer message without content", 80, "", developer("", ``), refused, accepted},
		{"tool addition without headerSeq", 80, "", developer("", `{"type":"tool-addition","toolName":"read"}`), refused, refused},
		{"tool removal with headerSeq", 80, "", developer(`,"headerSeq":76`, `{"type":"tool-removal","toolName":"read"}`), refused, refused},
		{"tool addition of a tool that is not declared", 80, "", developer(`,"headerSeq":76`, `{"type":"tool-addition","toolName":"nope"}`), refused, "developer-tool"},
		{"tool addition from what is no header", 80, "", developer(`,"headerSeq":75`, `{"type":"tool-addition","toolName":"read"}`), refused, "developer-header"},
		{"image/offload with a bad index", 80, "", row(80, "image/offload", `{"targets":[{"seq":74,"imageIndexes":[5]}]}`, ""), "offload-missing", "offload-missing"},
	} {
		for version, want := range map[int]string{3: c.v3, 4: c.v4} {
			t.Run(fmt.Sprintf("v%d %s", version, c.name), func(t *testing.T) {
				text, err := os.ReadFile(shared(t, "dsh", fmt.Sprintf("v%d", version), "orig-swap.jsonl"))
				if err != nil {
					t.Fatal(err)
				}
				rows := strings.Split(string(text), "\n")
				at := c.seq + 1
				if c.find == "" {
					rows[at] = c.text
				} else if changed := replaceEither(rows[at], c.find, c.text); changed != "" {
					rows[at] = changed
				} else {
					t.Fatalf("row %d has no %s", at, c.find)
				}
				path := filepath.Join(t.TempDir(), "session.jsonl")
				if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
					t.Fatal(err)
				}
				r, err := restore(path)
				if want == accepted {
					if err != nil {
						t.Fatal(err)
					}
					if n := len(r.ledger.events); n != len(rows)-2 {
						t.Errorf("%d events, want %d", n, len(rows)-2)
					}
					return
				}
				var corrupt *jsonl.CorruptError
				var invariant *session.InvariantError
				switch {
				case err == nil:
					t.Error("accepted")
				case want == refused && (errors.As(err, &corrupt) || errors.As(err, &invariant)):
				case !errors.As(err, &invariant) || string(invariant.Code) != want:
					t.Errorf("got %v, want %s", err, want)
				}
			})
		}
	}
}

// replaceEither replaces find in row, whichever order sourceEventSeqs and
// surfaceOp have there; it is "" when neither is found once.
func replaceEither(row, find, text string) string {
	if strings.Count(row, find) == 1 {
		return strings.Replace(row, find, text, 1)
	}
	sources, op, both := strings.Cut(find, `,"surfaceOp"`)
	newSources, newOp, ok := strings.Cut(text, `,"surfaceOp"`)
	if both && ok && strings.Count(row, sources) == 1 && strings.Count(row, `"surfaceOp"`+op) == 1 {
		row = strings.Replace(row, sources, newSources, 1)
		return strings.Replace(row, `"surfaceOp"`+op, `"surfaceOp"`+newOp, 1)
	}
	return ""
}
