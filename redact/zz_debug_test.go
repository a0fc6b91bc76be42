package redact_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

func TestZZ(t *testing.T) {
	e := builtin(t)
	if p := os.Getenv("ZZ"); p != "" {
		f, _ := os.Open(p)
		sc := bufio.NewScanner(f)
		sc.Buffer(nil, 1<<24)
		for sc.Scan() {
			var out []byte
			if json.Valid(sc.Bytes()) {
				out, _, _ = e.JSON(nil, sc.Bytes())
			} else {
				out, _, _ = e.Text(nil, sc.Text())
			}
			fmt.Println(string(out))
		}
	}
}
