package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/otel-bridge/otel-bridge/bench/receiver"
	"github.com/otel-bridge/otel-bridge/bench/workload"
)

func main() {
	switch os.Args[1] {
	case "receive":
		l, _ := net.Listen("tcp", "127.0.0.1:14318")
		(&http.Server{Handler: receiver.New(), ReadHeaderTimeout: 10 * time.Second}).Serve(l)
	case "generate":
		w, err := workload.Generate(os.Args[2], workload.Spec{Version: 2, Bytes: 100e6, Sessions: 4, Seed: 1})
		fmt.Println(err, w.Events, w.Records, w.LedgerBytes, len(w.Secrets))
	}
}
