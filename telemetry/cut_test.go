package telemetry

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCutShortensTheLargestStringsOnly(t *testing.T) {
	for _, c := range []struct {
		body  string
		limit int
		want  string
	}{
		{`{"a":"0123456789","b":"xy","n":12345}`, 33, `{"a":"012345","b":"xy","n":12345}`},
		{`{"a":"0123456789","b":"0123456789"}`, 29, `{"a":"0123456","b":"0123456"}`},
		{`["\u00e9\u00e9\u00e9"]`, 17, `["\u00e9\u00e9"]`},
		{`["\ud83d\ude00\ud83d\ude00"]`, 20, `["\ud83d\ude00"]`},
		{`["会话会话"]`, 12, `["会话"]`},
		{`["ab\\\\cd"]`, 9, `["ab\\"]`},
		{`["0123[REDACTED:aws-access-token]4567"]`, 30, `["0123"]`},
		{`["0123[REDACTED:aws-access-token]4567"]`, 37, `["0123[REDACTED:aws-access-token]45"]`},
		{`["x[TOKEN:pii-email:k1:00112233445566778899aabb]y"]`, 40, `["x"]`},
		{`{"long key that stays":"value"}`, 28, `{"long key that stays":"va"}`},
		{`{"a" : "0123456789"}`, 15, `{"a" : "01234"}`},
	} {
		got, ok := cut(nil, []byte(c.body), c.limit)
		if !ok || string(got) != c.want {
			t.Errorf("%s to %d: %s %v, want %s", c.body, c.limit, got, ok, c.want)
		}
	}
}

func TestCutRefusesWhatItsStringsDoNotAccountFor(t *testing.T) {
	if _, ok := cut(nil, []byte(`{"n":[1,2,3,4,5,6,7,8,9],"s":"abc"}`), 20); ok {
		t.Error("cut below the structure")
	}
}

func TestCutLeavesKeysAloneHoweverFarTheirColonIs(t *testing.T) {
	blanks := strings.Repeat(" ", 100)
	body := `{"a long key that stays"` + blanks + `:"value","s":"0123456789"}`
	want := `{"a long key that stays"` + blanks + `:"value","s":"01234"}`
	if got, ok := cut(nil, []byte(body), len(body)-5); !ok || string(got) != want {
		t.Errorf("%s %v, want %s", got, ok, want)
	}
}

func TestCutAlwaysFitsAndStaysJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "é", "会", "😀", `"`, `\`, "\n", "\x00", "[REDACTED:pii-email]", "[", "]", "x:"}
	for range 3000 {
		var fields []string
		for i := range 1 + rng.IntN(5) {
			var s strings.Builder
			for range rng.IntN(40) {
				s.WriteString(alphabet[rng.IntN(len(alphabet))])
			}
			text, _ := json.Marshal(s.String())
			fields = append(fields, fmt.Sprintf(`"k%d":%s`, i, text))
		}
		body := "{" + strings.Join(fields, ",") + "}"
		limit := 10 + rng.IntN(len(body)+10)
		got, ok := cut(nil, []byte(body), limit)
		if !ok {
			continue
		}
		if len(got) > limit && len(got) > len(body) || len(body) > limit && len(got) > limit {
			t.Fatalf("%d bytes for a limit of %d", len(got), limit)
		}
		if !json.Valid(got) || !utf8.Valid(got) {
			t.Fatalf("not JSON: %q from %q", got, body)
		}
		if len(body) <= limit && string(got) != body {
			t.Fatalf("cut although it fits: %q", got)
		}
		for _, part := range strings.Split(string(got), "[REDACTED:")[1:] {
			if !strings.HasPrefix(part, "pii-email]") {
				t.Fatalf("cut inside a marker: %q", got)
			}
		}
	}
}
