// Package sidecar runs the whole pipeline from a configuration: once over given
// files (export), or for as long as it is let beside a DSH sessions root (run).
//
//	watcher ──▶ keeper ──▶ telemetry.Capture ──▶ outbox ──▶ otlp.Deliverer ──▶ receiver
//
// Under DISABLED nothing of it is built.
package sidecar
