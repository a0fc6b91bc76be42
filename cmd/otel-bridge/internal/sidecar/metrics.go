package sidecar

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/version"
)

// Metrics are read from the parts that count at the moment they are asked for.
// Labels are fixed words and rule ids, never anything of a session.
var (
	buildInfo  = desc("build_info", "Which build this is.", "version", "go_version")
	modeInfo   = desc("mode", "The mode, as a label of the value 1.", "mode")
	redactInfo = desc("redaction_enabled", "1 unless redaction was refused by name.")

	eventsTotal    = desc("events_total", "Ledger events by what became of them, in this data directory's life; read is the sum of all others.", "outcome")
	beyond         = desc("events_beyond_watermark", "Ledger events behind the last feedback, which consent does not cover yet; not counted as read.")
	attemptsTotal  = desc("attempts_total", "Records of attempts at an answer that never became a message.")
	redactionTotal = desc("redactions_total", "What redaction took out, by rule, since the process began.", "rule")
	sessions       = desc("sessions", "Ledgers that are known, and those of them that are held.", "state")

	recordsTotal = desc("records_total", "Records by what became of them, in this data directory's life. committed = acked + discarded + pending + held + quarantined.", "state")
	records      = desc("records", "Records in the data directory, by state.", "state")
	outboxBytes  = desc("outbox_bytes", "Bytes of the data directory: all of them, and those that hold records not settled.", "kind")
	outboxFull   = desc("outbox_full", "1 while intake is stopped for want of room.")

	requestsTotal = desc("requests_total", "Requests that went to the network.")
	requestBytes  = desc("request_bytes_total", "Bytes of requests, before and after compression.", "stage")
	retriesTotal  = desc("request_retries_total", "Requests that were or will be made again.")
	holdsTotal    = desc("request_holds_total", "Requests after which everything was held.")
	splitsTotal   = desc("batch_splits_total", "Batches cut in two.")
	refreshed     = desc("records_redacted_again_total", "Records redacted again before they were sent, under a newer policy.")
	receiverReady = desc("receiver_ready", "1 when records flow, or would if there were any.")
	lastAck       = desc("receiver_last_ack_timestamp_seconds", "When a request was last acknowledged; 0 for never.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("otel_bridge_"+name, help, labels, nil)
}

// metrics is a registry of this generation's own.
func (g *generation) metrics() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{g}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

type collector struct{ g *generation }

// Describe leaves the collector unchecked: under DISABLED it has less to tell.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads everything once.
func (c collector) Collect(out chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	flag := func(d *prometheus.Desc, on bool) {
		v := 0.0
		if on {
			v = 1
		}
		gauge(d, v)
	}
	g := c.g
	v := version.Get()
	gauge(buildInfo, 1, v.Version, v.Go)
	gauge(modeInfo, 1, g.cfg.Mode.String())
	flag(redactInfo, !g.cfg.Redact.None)
	if g.p == nil {
		return
	}

	e := g.p.Capture.Outcomes()
	count(eventsTotal, e.Read, "read")
	count(eventsTotal, e.Exported, "exported")
	count(eventsTotal, e.Withheld, "withheld")
	count(eventsTotal, e.Elided, "elided")
	count(eventsTotal, e.Inherited, "inherited")
	count(eventsTotal, e.OutOfScope, "out_of_scope")
	gauge(beyond, float64(g.p.keeper.beyond()))
	count(attemptsTotal, e.Attempts)
	for rule, n := range g.tally.counts() {
		count(redactionTotal, n, rule)
	}
	all, held := g.p.keeper.counts()
	gauge(sessions, float64(all), "known")
	gauge(sessions, float64(held), "held")

	s := g.p.Outbox.Stats()
	count(recordsTotal, s.Committed, "committed")
	count(recordsTotal, s.Acked, "acked")
	count(recordsTotal, s.Discarded, "discarded")
	count(recordsTotal, s.Lost, "lost")
	gauge(records, float64(s.Pending), "pending")
	gauge(records, float64(s.Held), "held")
	gauge(records, float64(s.Quarantined), "quarantined")
	gauge(records, float64(s.Damaged), "damaged")
	gauge(outboxBytes, float64(s.DiskBytes), "disk")
	gauge(outboxBytes, float64(s.UnackedBytes), "unsettled")
	flag(outboxFull, s.Full)

	d, acked := g.tally.delivery(g.p.Deliverer)
	count(requestsTotal, d.Requests)
	count(requestBytes, d.RawBytes, "raw")
	count(requestBytes, d.WireBytes, "wire")
	count(retriesTotal, d.Retries)
	count(holdsTotal, d.Holds)
	count(splitsTotal, d.Splits)
	count(refreshed, d.Refreshed)
	flag(receiverReady, g.p.Deliverer.State().Ready())
	ack := 0.0
	if !acked.IsZero() {
		ack = float64(acked.UnixMilli()) / 1000
	}
	gauge(lastAck, ack)
}
