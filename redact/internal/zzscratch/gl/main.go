package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/viper"
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"
	"github.com/zricethezav/gitleaks/v8/logging"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/corpus"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

func cpu() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec) + float64(u.Utime.Usec)/1e6 + float64(u.Stime.Sec) + float64(u.Stime.Usec)/1e6
}

func main() {
	logging.Logger = zerolog.Nop()
	viper.SetConfigType("toml")
	viper.ReadConfig(strings.NewReader(config.DefaultConfig))
	var vc config.ViperConfig
	viper.Unmarshal(&vc)
	cfg, err := vc.Translate()
	if err != nil {
		panic(err)
	}
	d := detect.NewDetector(cfg)
	d.MaxDecodeDepth = 5
	e, _ := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), pii.Policy()}})
	es, _ := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy()}})
	for _, c := range corpus.Classes {
		recs := corpus.New(1).Records(c, 400<<10)
		n := 0
		for _, r := range recs {
			n += len(r)
		}
		t0 := cpu()
		f := 0
		for _, r := range recs {
			f += len(d.DetectBytes(r))
		}
		gl := cpu() - t0
		run := func(e *redact.Engine) float64 {
			t0 = cpu()
			var dst []byte
			for i := 0; i < 10; i++ {
				for _, r := range recs {
					dst, _, _ = e.JSON(dst[:0], r)
				}
			}
			return (cpu() - t0) / 10
		}
		run(e)
		ours, only := run(e), run(es)
		fmt.Fprintf(os.Stdout, "%-8s gitleaks %.3f MB/s (%d findings)  redact %.1f MB/s  x%.0f   secrets only %.1f x%.0f\n", c, float64(n)/1e6/gl, f, float64(n)/1e6/ours, gl/ours, float64(n)/1e6/only, gl/only)
	}
}
