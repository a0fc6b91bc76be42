package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime/pprof"
	"strconv"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/corpus"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

func main() {
	e, _ := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), pii.Policy()}})
	if os.Args[1] == "fp" {
		for _, c := range []corpus.Class{corpus.Code, corpus.Logs, corpus.CJK, corpus.Base64, corpus.Lock, corpus.Git} {
			n, marks := 0, 0
			counts := map[string]int{}
			ex := map[string]string{}
			for _, r := range corpus.New(77).Records(c, 3<<20) {
				n += len(r)
				out, rep, err := e.JSON(nil, r)
				if err != nil {
					panic(err)
				}
				for k, v := range rep.Counts {
					marks += v
					counts[k] += v
					if ex[k] == "" {
						ex[k] = regexp.MustCompile(`.{60}\[REDACTED:` + k + `\].{10}`).FindString(string(out))
					}
				}
			}
			fmt.Println(c, n, marks, counts, ex)
		}
		return
	}
	recs := corpus.New(1).Records(corpus.Class(os.Args[1]), 1<<20)
	n, _ := strconv.Atoi(os.Args[2])
	f, _ := os.Create("/tmp/p.prof")
	pprof.StartCPUProfile(f)
	var dst []byte
	for i := 0; i < n; i++ {
		for _, r := range recs {
			dst, _, _ = e.JSON(dst[:0], r)
		}
	}
	pprof.StopCPUProfile()
}
