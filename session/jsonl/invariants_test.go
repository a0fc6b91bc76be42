package jsonl

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// The examples of docs/invariants.md for what only files can have are refused with
// the code of their section.
func TestDocumentedFilesAreRefusedWithTheirCode(t *testing.T) {
	text, err := os.ReadFile("../../docs/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(text), "\n## Files\n")
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	sections := strings.Split(chapter, "\n### ")[1:]
	if len(sections) != 9 {
		t.Errorf("%d codes", len(sections))
	}
	// Short limits, so that the texts over them are short.
	short := func(o *options) { o.maxLine, o.longest = 1<<10, 1<<16 }
	for _, section := range sections {
		code, rest, _ := strings.Cut(section, "\n")
		t.Run(code, func(t *testing.T) {
			_, example, ok := strings.Cut(rest, "```")
			if !ok {
				t.Fatal("no example")
			}
			kind, example, _ := strings.Cut(example, "\n")
			example, _, _ = strings.Cut(example, "\n```")
			var err error
			switch kind {
			case "hex":
				data, hexErr := hex.DecodeString(example)
				if hexErr != nil {
					t.Fatal(hexErr)
				}
				_, _, err = readAll(write(t, "s", data), short)
			case "json":
				var p Position
				if err := json.Unmarshal([]byte(example), &p); err != nil {
					t.Fatal(err)
				}
				_, err = OpenLive(write(t, "s", []byte(headerV3+rowOf(0))), p)
			default:
				end, size := "\n", 2<<10
				if code == string(CodeLineTooLong) {
					end, size = "", 1<<20
				}
				file := strings.ReplaceAll(example, "…", strings.Repeat("x", size)) + end
				_, err = liveErr(write(t, "s", []byte(file)), short)
			}
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || string(corrupt.Code) != code {
				t.Errorf("got %v", err)
			}
		})
	}
}

// liveErr reads a file as a growing one, for which a bad last row is an error and
// no torn tail.
func liveErr(path string, opts ...Option) (events int, err error) {
	r, err := OpenLive(path, Position{}, opts...)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for r.Next() {
		events++
	}
	return events, r.Err()
}
