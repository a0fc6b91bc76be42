package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/otel-bridge/otel-bridge/bench/receiver"
)

// far is the receiver in a process of its own, the same one for all senders.
type far struct {
	proc *process
	base string
}

// receive is the hidden command that far starts; it ends with ctx.
func receive(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	server := &http.Server{Handler: receiver.New(), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func startFar(ctx context.Context, log string) (*far, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "receive")
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.Stdout = w
	p, err := startProcess(ctx, cmd, log)
	w.Close()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		p.kill()
		return nil, p.failure()
	}
	return &far{proc: p, base: strings.TrimSpace(line)}, nil
}

func (f *far) close() { f.proc.kill() }

func (f *far) logs() string { return f.base + "/v1/logs" }

func (f *far) control(c receiver.Control) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	resp, err := http.Post(f.base+"/control", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("the receiver refuses its instructions: " + resp.Status)
	}
	return nil
}

// reset forgets everything and takes every request again.
func (f *far) reset() error {
	zero, no := 0, false
	return f.control(receiver.Control{Reset: true, Status: &zero, LoseAnswer: &zero, Keep: &no})
}

func (f *far) status(code int) error { return f.control(receiver.Control{Status: &code}) }

func (f *far) stats() (s receiver.Stats, err error) {
	resp, err := http.Get(f.base + "/stats")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

func (f *far) kept() ([]byte, error) {
	resp, err := http.Get(f.base + "/kept")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// stall is how long a receiver that sees nothing new is waited for: longer than
// the longest pause between two attempts of any sender.
const stall = 45 * time.Second

// wait returns when so many different events have arrived, when the sender has
// ended, when nothing new comes any more, or at the limit.
func (f *far) wait(ctx context.Context, p *process, events int64, look, limit time.Duration) (s receiver.Stats, err error) {
	start := time.Now()
	news, last, ended := start, int64(-1), false
	for {
		if s, err = f.stats(); err != nil || s.Distinct >= events || ended {
			return s, err
		}
		now := time.Now()
		if s.Distinct != last {
			news, last = now, s.Distinct
		}
		if now.Sub(news) > stall || now.Sub(start) > limit {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-p.exited:
			ended = true // one more look
		case <-time.After(look):
		}
	}
}
