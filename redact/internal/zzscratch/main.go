package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

func main() {
	t0 := time.Now()
	e, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), pii.Policy()}})
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, "build", time.Since(t0))
	if len(os.Args) > 2 && os.Args[1] == "std" {
		std(e, os.Args[2])
		return
	}
	sc := bufio.NewScanner(os.Stdin)
	sc.Buffer(nil, 1<<28)
	w := bufio.NewWriter(os.Stdout)
	defer w.Flush()
	counts := map[string]int{}
	n := 0
	t0 = time.Now()
	for sc.Scan() {
		var out []byte
		var rep *redact.Report
		n += len(sc.Bytes())
		if len(os.Args) > 1 && os.Args[1] == "text" {
			out, rep, err = e.Text(nil, sc.Text())
		} else {
			out, rep, err = e.JSON(nil, sc.Bytes())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for k, v := range rep.Counts {
			counts[k] += v
		}
		w.Write(out)
		w.WriteByte('\n')
	}
	d := time.Since(t0)
	fmt.Fprintf(os.Stderr, "%d bytes %.1f MB/s\n", n, float64(n)/1e6/d.Seconds())
	if len(os.Args) > 2 {
		for k, v := range counts {
			fmt.Fprintln(os.Stderr, v, k)
		}
	}
}
