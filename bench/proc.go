package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a sender under measurement. Its output goes to a file beside its
// data, which is shown when it fails.
type process struct {
	cmd     *exec.Cmd
	started time.Time
	log     string
	exited  chan struct{}
	err     error // of Wait, once exited is closed

	mu       sync.Mutex
	peakRSS  int64 // bytes
	sampling sync.WaitGroup
}

// startProcess starts cmd, which dies with ctx and with this program.
func startProcess(ctx context.Context, cmd *exec.Cmd, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, log: log, exited: make(chan struct{}), started: time.Now()}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	p.sampling.Go(p.sample)
	go func() {
		p.err = cmd.Wait()
		stop()
		close(p.exited)
		p.sampling.Wait()
	}()
	return p, nil
}

// sample follows the peak of resident memory, which the kernel keeps per
// program (what wait tells begins with the parent's, so it is of no use here).
func (p *process) sample() {
	path := fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if peak := vmHWM(path); peak > 0 {
			p.mu.Lock()
			p.peakRSS = max(p.peakRSS, peak)
			p.mu.Unlock()
		}
		select {
		case <-p.exited:
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

func vmHWM(path string) int64 {
	status, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	_, after, _ := bytes.Cut(status, []byte("VmHWM:"))
	line, _, _ := bytes.Cut(after, []byte("kB"))
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	return n << 10
}

// stop asks the process to end and waits; after the grace it is killed.
func (p *process) stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(grace):
		p.kill()
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// usage is what a process that has ended took.
type usage struct {
	CPU     time.Duration // user and system
	PeakRSS int64
	Exit    int
}

func (p *process) usage() usage {
	<-p.exited
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.cmd.ProcessState
	return usage{CPU: s.UserTime() + s.SystemTime(), PeakRSS: p.peakRSS, Exit: s.ExitCode()}
}

// failure describes an end that was not asked for.
func (p *process) failure() error {
	text, _ := os.ReadFile(p.log)
	if len(text) > 1500 {
		text = text[len(text)-1500:]
	}
	return fmt.Errorf("%s ended early: %v\n%s", filepath.Base(p.cmd.Path), p.err, text)
}

// pin binds a command to one core and to one thread of Go code.
func pin(cmd *exec.Cmd) error {
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		return errors.New("one core: the program taskset (util-linux) is needed")
	}
	cmd.Args = append([]string{taskset, "-c", "0", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = taskset
	cmd.Env = append(cmd.Environ(), "GOMAXPROCS=1")
	return nil
}

// syncs counts the fsync and fdatasync calls of a running process until it
// ends, by perf; ok is false where perf or the tracepoints are not to be had.
type syncs struct {
	cmd  *exec.Cmd
	file string
}

func countSyncs(p *process, file string) (*syncs, bool) {
	perf, err := exec.LookPath("perf")
	if err != nil {
		return nil, false
	}
	s := &syncs{file: file, cmd: exec.Command(perf, "stat", "-x", ",", "-o", file,
		"-e", "syscalls:sys_enter_fsync,syscalls:sys_enter_fdatasync", "-p", strconv.Itoa(p.cmd.Process.Pid))}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return s, s.cmd.Start() == nil
}

// count is asked after the process has ended.
func (s *syncs) count() (n int64, ok bool) {
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	_ = s.cmd.Wait() // perf tells its own interruption as a failure
	text, err := os.ReadFile(s.file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		value, rest, found := strings.Cut(line, ",")
		if found && strings.Contains(rest, "sys_enter_f") {
			v, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, false
			}
			n, ok = n+v, true
		}
	}
	return n, ok
}
