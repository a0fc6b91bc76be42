package redact_test

import (
	"fmt"
	"strings"
	"testing"
)

const anthropic = "sk-ant-api03-m8LcIvzSi1-qLGK2MNUpjuREtbr6oEZOq4ZgoliUaZySZQEF0vRd9isHb3tRfLLuZKg9J38f69WGwD6-0atz94TAqyYbMAA"

// A maker's long prefix is a token's beginning whatever stands before it.
func TestAnUnmistakablePrefixNeedsNoBoundary(t *testing.T) {
	e := builtin(t)
	for _, tok := range []string{anthropic, ghp, "xoxb-745550887470-9457988007315-77pjSxRGDzUnOfrBbPY52jwR", "glpat-9tmBg2HxPRNz7kQw4fLs", "sk_live_9tmBg2HxPRNz7kQw4fLsAa01",
		"sk-proj-9tmBg2HxPRNz7kQw4fLsAa01Zx81kd02mMqPl5", "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", "github_pat_11ABCDEFG0n38iq0A7umyTZ7AcjR3WaQK5etdC0801HDrV"} {
		for _, before := range []string{"PREFIX_", "k-", "a_", "a", "9", "Z_", "x--", "my-app-", "", "é", "_", "-"} {
			for _, form := range []string{`{"t":"%s%s"}`, `{"t":"see %s%s now"}`, `{"a":"{\"t\":\"%s%s\"}"}`} {
				if out := redactJSON(t, e, fmt.Sprintf(form, before, tok)); strings.Contains(out, tok[len(tok)-16:]) || strings.Contains(out, tok[8:20]) {
					t.Errorf("left: %s", out)
				}
			}
		}
	}
	for _, in := range []string{`{"t":"task-ant-design-component-library-v2"}`, `{"t":"disk-projects-are-here-2024-01-01-and-more"}`, `{"t":"my_npm_config_registry_timeout_seconds_2"}`, `{"t":"is_ghs_enabled_for_all_the_users_of_v2"}`} {
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%s becomes %s", in, out)
		}
	}
}

// What shows as nothing is seen through: Default_Ignorable_Code_Point of
// Unicode, and what is blank without being a space.
func TestBlankCharactersInATokenAreSeenThrough(t *testing.T) {
	e := builtin(t)
	for _, rs := range [][2]rune{{0xad, 0xad}, {0x34f, 0x34f}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x200b, 0x200f}, {0x202a, 0x202e}, {0x2060, 0x206f},
		{0x2800, 0x2800}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3}, {0x1d159, 0x1d159}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}} {
		for r := rs[0]; r <= rs[1]; r += max(1, (rs[1]-rs[0])/16) {
			for _, v := range []string{ghp[:10] + string(r) + ghp[10:], ghp[:2] + string(r) + ghp[2:], strings.Join(strings.Split(ghp, ""), string(r))} {
				if out := redactJSON(t, e, `{"t":"x `+v+` end"}`); strings.Contains(out, ghp[len(ghp)-8:]) || strings.Contains(out, ghp[4:12]) || strings.Count(out, string(r)) > 8 || !strings.Contains(out, " end") {
					t.Errorf("%U: %s", r, out)
				}
			}
		}
	}
	for _, in := range []string{`{"t":"日本語のテキスト、ㅤ空白⠀点字 𝅘 ﾠ"}`} {
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%s becomes %s", in, out)
		}
	}
}

// Headers as a flat list of names and values.
func TestHeadersInAListAreNamesAndValues(t *testing.T) {
	e := builtin(t)
	for _, in := range []string{
		`{"rawHeaders":["X-Auth-Token","9tmBg2HxPRNz7kQw4fLs"]}`,
		`{"rawHeaders":["Host","example.com","X-Api-Key","9tmBg2HxPRNz7kQw4fLs","Accept","*/*"]}`,
		`{"req":{"raw_headers":["Authorization","Bearer 9tmBg2HxPRNz7kQw4fLs"]}}`,
		`{"headers":[["X-Auth-Token","9tmBg2HxPRNz7kQw4fLs"],["Accept","*/*"]]}`,
		`{"a":"{\"rawHeaders\":[\"X-Auth-Token\",\"9tmBg2HxPRNz7kQw4fLs\"]}"}`,
		`{"rawTrailers":["x-session-token","9tmBg2HxPRNz7kQw4fLs"]}`,
	} {
		if out := redactJSON(t, e, in); strings.Contains(out, "9tmBg2") || !strings.Contains(out, "oken") && !strings.Contains(out, "Key") && !strings.Contains(out, "Auth") {
			t.Errorf("left: %s", out)
		}
	}
	for _, in := range []string{`{"rawHeaders":["Host","example.com","X-Token-Type","bearer","Access-Control-Allow-Headers","Authorization","Vary","Authorization","Accept","application/json"]}`,
		`{"headers":["password","username","token","email"]}`, `{"rawHeaders":["Authorization"]}`, `{"fields":["password","confirmPassword"]}`} {
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%s becomes %s", in, out)
		}
	}
}

// An escape behind a token, written out in text, ends it.
func TestAnEscapeThatIsWrittenOutEndsAToken(t *testing.T) {
	e := builtin(t)
	for _, esc := range []string{`\\n`, `\\t`, `\\u0000`, `\\x00`, `\\u000a`} {
		if out := redactJSON(t, e, `{"t":"`+ghp+esc+`rest"}`); out != `{"t":"[REDACTED:github-pat]`+esc+`rest"}` {
			t.Errorf("%s: %s", esc, out)
		}
	}
}

// Names of keys that name an entry and not a secret, with a hash behind.
func TestKeysOfCachesStay(t *testing.T) {
	e := builtin(t)
	const sha1, sha256 = "d5cccbfca287c14736f54f5b3a8b1c2d9e0f7a61", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, v := range []string{sha1, sha256, "6388d6b3-a9e2-4167-bc9a-5e57c1ea7ab7", strings.ToUpper(sha1)} {
		for _, name := range []string{"cache_key", "cacheKey", "dedupe_key", "dedup-key", "idempotency_key", "Idempotency-Key", "partitionKey", "sort_key", "rowKey", "session_key", "CACHE_KEY"} {
			for _, form := range []string{`{"%s":"%s"}`, `{"t":"%s: %s"}`, `{"t":"%s=%s"}`, `{"t":"%s=\"%s\" hit"}`, `{"a":"{\"%s\": \"%s\"}"}`} {
				in := fmt.Sprintf(form, name, v)
				if out := redactJSON(t, e, in); out != in {
					t.Errorf("%s becomes %s", in, out)
				}
			}
		}
		for _, name := range []string{"api_key", "secret_key", "cache_password", "session_token"} {
			if in := fmt.Sprintf(`{"%s":"%s"}`, name, v); redactJSON(t, e, in) == in {
				t.Errorf("left: %s", in)
			}
		}
	}
	if in := `{"t":"cache_key=9tmBg2HxPRNz7kQw4fLs"}`; redactJSON(t, e, in) == in {
		t.Error("left: ", in)
	}
}

// Addresses with letters beyond ASCII (RFC 6531) go as a whole.
func TestInternationalAddressesGoWhole(t *testing.T) {
	e := builtin(t)
	for _, a := range []string{"jane@münchen.de", "jäne.d@firma.de", "jane@firma.münchen", "иван.петров@почта.рф", "δοκιμή@παράδειγμα.ελ", "josé+x@correo.es", "jane@xn--mnchen-3ya.de", "jane@example.xn--p1ai",
		"张三@例子.中国", "用户@example.com", "jane@例子.中国"} {
		for _, form := range []string{`{"t":"%s"}`, `{"t":"mail to <%s> now"}`, `{"t":"an %s, bitte"}`, `{"a":"{\"t\":\"%s\"}"}`, `{"t":"mailto:%s?x=1"}`} {
			in := fmt.Sprintf(form, a)
			if out := redactJSON(t, e, in); out != strings.Replace(in, a, "[REDACTED:pii-email]", 1) {
				t.Errorf("%s becomes %s", in, out)
			}
		}
	}
	for in, want := range map[string]string{
		`{"t":"请联系jane@example.com，谢谢"}`:        `{"t":"请联系[REDACTED:pii-email]，谢谢"}`,
		`{"t":"jane@example.com请回复"}`:           `{"t":"[REDACTED:pii-email]请回复"}`,
		`{"t":"メールはjane@example.comまで。"}`:       `{"t":"メールは[REDACTED:pii-email]まで。"}`,
		`{"t":"café @home und müller@ x@über"}`: `{"t":"café @home und müller@ x@über"}`,
		`{"t":"git@münchen.de:team/repo.git"}`:  `{"t":"git@münchen.de:team/repo.git"}`,
	} {
		if out := redactJSON(t, e, in); out != want {
			t.Errorf("%s becomes %s", in, out)
		}
	}
}
