package receiver

import (
	"bytes"
	"errors"
	"fmt"
	"path"

	"google.golang.org/protobuf/encoding/protowire"
)

// record is what is counted of one log record. Its slices point into the request.
type record struct {
	session []byte
	seq     int64
	event   bool  // an event of a ledger: session and seq are known
	body    int64 // bytes of the body's encoded value
}

var errTruncated = errors.New("truncated message")

// fields calls fn for each length-delimited or varint field of a message.
func fields(msg []byte, fn func(num protowire.Number, data []byte, n uint64) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return errTruncated
		}
		msg = msg[n:]
		var data []byte
		var value uint64
		switch typ {
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(msg)
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(msg)
		case protowire.Fixed64Type:
			value, n = protowire.ConsumeFixed64(msg)
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg)
		}
		if n < 0 {
			return errTruncated
		}
		msg = msg[n:]
		if err := fn(num, data, value); err != nil {
			return err
		}
	}
	return nil
}

// walk finds the records of an ExportLogsServiceRequest.
func walk(records []record, request []byte) ([]record, error) {
	err := fields(request, func(num protowire.Number, resource []byte, _ uint64) error {
		if num != 1 {
			return nil
		}
		return fields(resource, func(num protowire.Number, scope []byte, _ uint64) error {
			if num != 2 {
				return nil
			}
			return fields(scope, func(num protowire.Number, log []byte, _ uint64) error {
				if num != 2 {
					return nil
				}
				r, err := logRecord(log)
				records = append(records, r)
				return err
			})
		})
	})
	if err != nil {
		return records, fmt.Errorf("not an OTLP logs request: %w", err)
	}
	return records, nil
}

// logRecord reads one record: who it is, by our attributes or, as a file tailer
// sends it, by the name of its file and the seq in its line.
func logRecord(log []byte) (r record, err error) {
	var line, file []byte
	sequenced := false
	err = fields(log, func(num protowire.Number, data []byte, _ uint64) error {
		switch num {
		case 5:
			r.body = int64(len(data))
			line, err = value(data)
			return err
		case 6:
			var key, raw []byte
			if err := fields(data, func(num protowire.Number, data []byte, _ uint64) error {
				if num == 1 {
					key = data
				} else {
					raw = data
				}
				return nil
			}); err != nil {
				return err
			}
			switch string(key) {
			case "session.id":
				r.session, err = value(raw)
			case "log.file.path":
				file, err = value(raw)
			case "event.seq":
				sequenced = true
				err = fields(raw, func(num protowire.Number, _ []byte, n uint64) error {
					if num == 3 {
						r.seq = int64(n)
					}
					return nil
				})
			}
			return err
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	if sequenced {
		r.event = len(r.session) > 0
		return r, nil
	}
	if file != nil {
		r.session = []byte(path.Base(path.Dir(string(file))))
		r.seq, r.event = LineSeq(line)
	}
	return r, nil
}

// value returns the string of an AnyValue, if it is one.
func value(v []byte) (text []byte, err error) {
	err = fields(v, func(num protowire.Number, data []byte, _ uint64) error {
		if num == 1 {
			text = data
		}
		return nil
	})
	return text, err
}

// LineSeq is the seq in the beginning of a ledger's line; a header has none.
func LineSeq(line []byte) (int64, bool) {
	head := line[:min(len(line), 128)]
	for _, key := range [...]string{`"seq":`, `"seq0":`} {
		if i := bytes.Index(head, []byte(key)); i >= 0 {
			var n int64
			digits := head[i+len(key):]
			for len(digits) > 0 && digits[0] >= '0' && digits[0] <= '9' {
				n = n*10 + int64(digits[0]-'0')
				digits = digits[1:]
			}
			return n, true
		}
	}
	return 0, false
}
