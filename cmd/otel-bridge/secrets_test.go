package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// planted is one secret of the shared list.
type planted struct {
	Kind    string `json:"kind"`
	Value   string `json:"value"`
	Default bool   `json:"default"`
}

// nosecrets FILE|DIR... checks that none of the planted values which the
// default policies must remove is left, in any encoding.
func cmdNoSecrets(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: nosecrets file|dir...")
	}
	list, err := readPlanted(filepath.Join(ts.Getenv("SHARED"), "data", "dsh", "planted.jsonl"))
	ts.Check(err)
	found := 0
	for _, arg := range args {
		files := 0
		err := filepath.WalkDir(ts.MkAbs(arg), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			files++
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, p := range leaks(text, list) {
				found++
				if !neg {
					ts.Logf("%s: %s", arg, p)
				}
			}
			return nil
		})
		ts.Check(err)
		if files == 0 {
			ts.Fatalf("%s holds no file", arg)
		}
	}
	if found > 0 != neg {
		ts.Fatalf("%d secrets found", found)
	}
}

func readPlanted(path string) ([]planted, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []planted
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var p planted
		if err := json.Unmarshal(sc.Bytes(), &p); err != nil {
			return nil, err
		}
		if p.Default {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s lists nothing", path)
	}
	return list, sc.Err()
}

var base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}={0,2}`)

// leaks names the kinds whose value is in text: as it is, with JSON's escapes
// at any depth, URL-encoded, inside base64 at any alignment, or over the
// members of an array.
func leaks(text []byte, list []planted) []string {
	views := map[string][]byte{"plain": text}
	un := text
	for depth := 1; depth <= 3; depth++ {
		un = unescapeJSON(un)
		views[fmt.Sprintf("escaped %d times", depth)] = un
	}
	views["joined arrays"] = joinArrays(text)
	views["joined arrays, unescaped"] = joinArrays(unescapeJSON(text))
	views["url"] = unescapeURL(un)
	views["base64"] = decodeBase64(un)
	var out []string
	seen := map[string]bool{}
	for how, view := range views {
		folded := bytes.ToLower(view)
		for _, p := range list {
			if seen[p.Kind] {
				continue
			}
			for _, form := range forms(p.Value) {
				if bytes.Contains(folded, bytes.ToLower([]byte(form))) {
					seen[p.Kind] = true
					out = append(out, p.Kind+" ("+how+")")
					break
				}
			}
		}
	}
	return out
}

// forms are the ways in which a value itself may be spelt.
func forms(v string) []string {
	js, _ := json.Marshal(v) // a string always marshals
	out := []string{v, strings.Trim(string(js), `"`), url.QueryEscape(v), url.PathEscape(v)}
	for shift := range 3 {
		// The characters of base64 that do not depend on what stands around.
		padded := append(make([]byte, shift), v...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			s := enc.EncodeToString(padded[:len(padded)-len(padded)%3])
			if cut := []int{0, 2, 3}[shift]; len(s)-cut >= 8 {
				out = append(out, s[cut:])
			}
		}
	}
	return out
}

var jsonEscape = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|["\\/bfnrt])`)

func unescapeJSON(b []byte) []byte {
	return jsonEscape.ReplaceAllFunc(b, func(e []byte) []byte {
		var s string
		if json.Unmarshal([]byte(`"`+string(e)+`"`), &s) != nil {
			return e
		}
		return []byte(s)
	})
}

var percent = regexp.MustCompile(`%[0-9a-fA-F]{2}`)

func unescapeURL(b []byte) []byte {
	return percent.ReplaceAllFunc(b, func(e []byte) []byte {
		s, err := url.PathUnescape(string(e))
		if err != nil {
			return e
		}
		return []byte(s)
	})
}

var betweenMembers = regexp.MustCompile(`"\s*(?:\}\s*)?,\s*(?:\{\s*"stringValue"\s*:\s*)?"`)

// joinArrays takes out what stands between two strings of an array, as plain
// JSON and as OTLP's values.
func joinArrays(b []byte) []byte { return betweenMembers.ReplaceAll(b, nil) }

func decodeBase64(b []byte) []byte {
	var out []byte
	for _, run := range base64Run.FindAll(b, -1) {
		s := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(string(run), "="))
		s = s[:len(s)-len(s)%4]
		dec, err := base64.StdEncoding.DecodeString(s)
		if err == nil {
			out = append(append(out, dec...), '\n')
		}
	}
	return out
}

func TestLeaksAreFoundInEveryEncoding(t *testing.T) {
	const secret = "ghp_FAKEfake0123/FAKEfake0123"
	list := []planted{{Kind: "x", Value: secret, Default: true}}
	twice, _ := json.Marshal(`{"a":"` + secret + `"}`)
	for name, text := range map[string]string{
		"plain":        "a " + secret + " b",
		"json":         `"ghp_FAKEfake0123\/FAKEfake0123"`,
		"json unicode": `"\u0067hp_FAKEfake0123/FAKEfake0123"`,
		"json in json": string(twice),
		"url":          "q=" + url.QueryEscape(secret),
		"base64 0":     base64.StdEncoding.EncodeToString([]byte("abc" + secret + "def")),
		"base64 1":     base64.StdEncoding.EncodeToString([]byte("a" + secret + "def")),
		"base64 2":     base64.URLEncoding.EncodeToString([]byte("ab" + secret)),
		"array":        `["ghp_FAKE","fake0123/FA", "KEfake0123"]`,
		"otlp array":   `{"arrayValue":{"values":[{"stringValue":"ghp_FAKE"},{"stringValue":"fake0123/FAKEfake0123"}]}}`,
	} {
		if got := leaks([]byte(text), list); len(got) != 1 {
			t.Errorf("%s: not found in %s", name, text)
		}
	}
	if got := leaks([]byte("ghp_FAKEfake0124 and [REDACTED:github-pat]"), list); len(got) != 0 {
		t.Errorf("found what is not there: %v", got)
	}
}
