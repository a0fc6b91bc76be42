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
	event   bool // an event of a ledger: session and seq are known
	body    int64
	text    int64
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
			text, n, err := value(data)
			r.text, line = n, text
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
				r.session, _, err = value(raw)
			case "log.file.path":
				file, _, err = value(raw)
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
		r.seq, r.event = lineSeq(line)
	}
	return r, nil
}

// value returns the string of an AnyValue, if it is one, and the number of text
// bytes in it: strings, keys, and the digits of numbers.
func value(v []byte) (text []byte, n int64, err error) {
	err = fields(v, func(num protowire.Number, data []byte, varint uint64) error {
		switch num {
		case 1:
			text = data
			n += int64(len(data))
		case 2:
			n += 4
		case 3:
			n += decimals(int64(varint))
		case 4:
			n += 8
		case 5, 6:
			return fields(data, func(_ protowire.Number, entry []byte, _ uint64) error {
				if num == 5 {
					_, k, err := value(entry)
					n += k
					return err
				}
				return fields(entry, func(num protowire.Number, part []byte, _ uint64) error {
					if num == 1 {
						n += int64(len(part))
						return nil
					}
					_, k, err := value(part)
					n += k
					return err
				})
			})
		}
		return nil
	})
	return text, n, err
}

func decimals(v int64) int64 {
	n := int64(1)
	if v < 0 {
		n, v = 2, -v
	}
	for ; v >= 10; v /= 10 {
		n++
	}
	return n
}

// lineSeq is the seq in the beginning of a ledger's line; a header has none.
func lineSeq(line []byte) (int64, bool) {
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
