package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/otel-bridge/otel-bridge/redact"
)

func std(e *redact.Engine, root string) {
	n, marks, size := 0, 0, 0
	counts := map[string]int{}
	t0 := time.Now()
	filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") || strings.Contains(p, "/testdata/") {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return nil
		}
		n++
		size += len(b)
		out, rep, err := e.Text(nil, string(b))
		if err != nil {
			fmt.Println(p, err)
			return nil
		}
		marks += bytes.Count(out, []byte("[REDACTED:")) - bytes.Count(b, []byte("[REDACTED:"))
		for k, v := range rep.Counts {
			counts[k] += v
		}
		if len(rep.Counts) > 0 {
			in := bytes.Split(b, []byte("\n"))
			ou := bytes.Split(out, []byte("\n"))
			for i := range in {
				if i < len(ou) && !bytes.Equal(in[i], ou[i]) {
					fmt.Printf("%s:%d\n   %s\n   %s\n", p, i+1, bytes.TrimSpace(in[i]), bytes.TrimSpace(ou[i]))
					if len(in) != len(ou) {
						break
					}
				}
			}
		}
		return nil
	})
	fmt.Println("files", n, "MB", float64(size)/1e6, "markers", marks, "per MB", float64(marks)/float64(size)*1e6, counts, time.Since(t0))
}
