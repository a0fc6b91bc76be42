package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestReadinessSaysItsReasonsAndHealthStaysUp(t *testing.T) {
	h := Health{Mode: "FULL", Warnings: []string{"redaction is off"}}
	reg := prometheus.NewRegistry()
	n := prometheus.NewGauge(prometheus.GaugeOpts{Name: "otel_bridge_up"})
	reg.MustRegister(n)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(ln, Handler(func() Health { return h }, reg))
	defer func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	base := "http://" + s.Addr().String()
	if code, body := get(t, client, base+"/readyz"); code != 200 || !strings.Contains(body, "redaction is off") {
		t.Errorf("ready: %d %s", code, body)
	}
	h.Reasons = []string{"outbox-full"}
	code, body := get(t, client, base+"/readyz")
	var got struct {
		Status  string
		Reasons []string
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != 503 || got.Status != "not ready" || len(got.Reasons) != 1 {
		t.Errorf("not ready: %d %s %v", code, body, err)
	}
	if code, _ := get(t, client, base+"/healthz"); code != 200 {
		t.Errorf("health: %d", code)
	}
	if code, body := get(t, client, base+"/metrics"); code != 200 || !strings.Contains(body, "otel_bridge_up 0") {
		t.Errorf("metrics: %d %s", code, body)
	}
	if code, _ := get(t, client, base+"/v1/outbox"); code != 404 {
		t.Errorf("the open door serves more than health: %d", code)
	}
}

func TestControlSocketIsPrivateAndTakesTheNameOfOneThatIsGone(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"short": t.TempDir(), "long": long} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", "/tmp")
			if _, err := ControlClient(dir); !errors.Is(err, ErrNotRunning) {
				t.Fatalf("before: %v", err)
			}
			ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
			for range 2 { // the second finds the first one's remains
				s, err := ListenControl(dir, ok)
				if err != nil {
					t.Fatal(err)
				}
				path := s.Addr().String()
				st, err := os.Stat(path)
				if err != nil || st.Mode().Perm() != 0o600 {
					t.Errorf("socket %v %v", st.Mode(), err)
				}
				c, err := ControlClient(dir)
				if err != nil {
					t.Fatal(err)
				}
				if code, body := get(t, c, "http://bridge/v1/status"); code != 200 || body != "/v1/status" {
					t.Errorf("%d %s", code, body)
				}
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if name == "long" {
					t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(path)) })
				}
			}
			if _, err := ControlClient(dir); !errors.Is(err, ErrNotRunning) {
				t.Errorf("after: %v", err)
			}
		})
	}
}
