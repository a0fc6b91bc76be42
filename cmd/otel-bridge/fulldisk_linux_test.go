package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smallDisk gives the rig's data directory a disk of so many MiB, and returns what
// leaves no byte of it.
func (r *rig) smallDisk(mebibytes string) (fill func(), room func()) {
	r.t.Helper()
	disk := filepath.Join(r.dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size="+mebibytes+"m,mode=0700"); err != nil {
		r.t.Skipf("needs root to mount a tmpfs: %v", err)
	}
	r.t.Cleanup(func() {
		r.kill()
		if err := syscall.Unmount(disk, 0); err != nil {
			r.t.Error(err)
		}
	})
	if err := os.Symlink(disk, r.data()); err != nil {
		r.t.Fatal(err)
	}
	ballast := filepath.Join(disk, "ballast")
	fill = func() {
		r.t.Helper()
		f, err := os.Create(ballast)
		if err != nil {
			r.t.Fatal(err)
		}
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if err := f.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	return fill, func() {
		r.t.Helper()
		if err := os.Remove(ballast); err != nil {
			r.t.Fatal(err)
		}
	}
}

// A start under another policy on a disk without room delivers what waits there: it
// is what will make room. That the policy has changed is told when there is some.
func TestAnotherPolicyStartsOnAFullDisk(t *testing.T) {
	r := newRig(t, "shutdown_timeout: 1s")
	fill, room := r.smallDisk("14")
	down, err := receiverBehavior("503")
	if err != nil {
		t.Fatal(err)
	}
	r.srv.SetBehavior(down)
	r.write(r.path("a"), head("a"), rows(0, 200))
	r.start()
	r.awaitMetric(`otel_bridge_events_total{outcome="exported"}`, 201)
	r.stop()

	fill()
	r.configure("shutdown_timeout: 1s", "redact: { policies: [builtin:secrets] }")
	r.srv.SetBehavior(accept)
	r.start()
	r.awaitEvents("a", 200)
	r.awaitLog("the redaction policy could not be noted")
	r.stop()

	room()
	r.start()
	r.awaitLog("the redaction policy is another than at the last start")
	r.poll("the change is told", func() bool { return r.ops("bridge.policy_changed", "") > 0 })
	r.stop()
	r.once("a", 200)
}

// A disk that was full goes on by itself when the receiver is there again, with nothing
// else making room: what is left of each segment then are drafts of summaries, which need
// room themselves.
func TestAFullDiskGoesOnWhenTheReceiverIsBack(t *testing.T) {
	r := newRig(t)
	r.smallDisk("14")
	down, err := receiverBehavior("503")
	if err != nil {
		t.Fatal(err)
	}
	r.srv.SetBehavior(down)
	const sessions, last = 40, 639
	text := strings.Repeat("w ", 500)
	for i := range sessions {
		var b strings.Builder
		for seq := range last + 1 {
			b.WriteString(row(seq, text))
		}
		name := fmt.Sprint("s", i)
		r.write(r.path(name), head(name), b.String())
	}
	r.start()
	r.awaitMetric("otel_bridge_outbox_full", 1)
	r.srv.SetBehavior(accept)
	for i := range sessions {
		r.awaitEvents(fmt.Sprint("s", i), last)
	}
	r.awaitMetric(`otel_bridge_records{state="pending"}`, 0)
	r.awaitMetric("otel_bridge_outbox_full", 0)
	r.stop()
	r.audit(r.root)
}

// On a full disk too a stop keeps to shutdown_timeout, also one that comes with a reload.
func TestAStopOnAFullDiskIsInTime(t *testing.T) {
	r := newRig(t, "shutdown_timeout: 1s")
	fill, _ := r.smallDisk("14")
	down, err := receiverBehavior("503")
	if err != nil {
		t.Fatal(err)
	}
	r.srv.SetBehavior(down)
	text := strings.Repeat("w ", 4000)
	for i := range 40 {
		var b strings.Builder
		for seq := range 80 {
			b.WriteString(row(seq, text))
		}
		name := fmt.Sprint("s", i)
		r.write(r.path(name), head(name), b.String())
	}
	full := func() {
		t.Helper()
		r.start()
		r.awaitMetric("otel_bridge_outbox_full", 1)
	}
	stop := func() {
		t.Helper()
		begin := time.Now()
		r.stop()
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("stopping took %v\n%s", took, r.log.bytes())
		}
	}
	full()
	fill()
	stop()

	full()
	r.awaitLog("receiver retrying") // it has begun
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	stop()
}
