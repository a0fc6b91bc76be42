// Package otlp delivers the records of an outbox to one OTLP/HTTP receiver,
// through the OpenTelemetry exporter otlploghttp, and loses none.
//
//	Source ──lease──▶ encode ──▶ otlploghttp ──▶ transport ──▶ receiver
//	  ▲               (one a worker)             puts the body in,
//	  │                                          judges the answer
//	  └── ack / quarantine / give back ◀── split, retry, hold ◀──┘
//
// Bodies are written from the stored records, not by way of the SDK's: why
// stands at the transport. They mean what the SDK would send.
//
// What an answer means:
//
//	2xx, empty or an OTLP answer     acknowledged
//	  … with a warning               acknowledged, said once
//	  … all records rejected         as 400
//	  … some records rejected        quarantine, outcome unknown; then one record a request for a while
//	2xx with anything else, 3xx      held: something else than the receiver answers
//	408 429 500 502 503 504,         kept, tried again without end: back-off with jitter, Retry-After
//	  connection and name failures,
//	  time-outs
//	413, 400 that says too large     split, the limit is remembered; a single record: quarantine
//	400 422                          split until the offending record is alone: quarantine, unless
//	                                 many in a row are refused: then held
//	everything else                  held, tried rarely, said loudly
//
// Held means that nothing is lost, nothing is hammered, and [Deliverer.State]
// says what to mend. The exporter's own retry is off, redirects are not
// followed, and no environment variable changes anything: what is not in
// [Config] does not exist.
//
// # Duplicates
//
// A request whose answer is lost is sent again. Its records keep their
// log.record.uid, so that a receiver can drop the copy. At most the batches in
// flight are affected.
package otlp
