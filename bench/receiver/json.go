package receiver

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// jsonRequest is what is looked at of an ExportLogsServiceRequest in OTLP's JSON.
type jsonRequest struct {
	ResourceLogs []struct {
		ScopeLogs []struct {
			LogRecords []struct {
				Attributes []struct {
					Key   string
					Value struct {
						StringValue *string
						IntValue    json.RawMessage // a string, or a number as some write it
					}
				}
				Body json.RawMessage
			}
		}
	}
}

// walkJSON is walk for a request in JSON. The bytes of a body are those of its
// JSON, which are more than Protobuf's.
func walkJSON(records []record, request []byte) ([]record, error) {
	var q jsonRequest
	if err := json.Unmarshal(request, &q); err != nil {
		return records, fmt.Errorf("not an OTLP logs request in JSON: %w", err)
	}
	for _, resource := range q.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, log := range scope.LogRecords {
				r := record{body: int64(len(log.Body))}
				for _, a := range log.Attributes {
					switch {
					case a.Key == "session.id" && a.Value.StringValue != nil:
						r.session = []byte(*a.Value.StringValue)
					case a.Key == "event.seq":
						n, err := strconv.ParseInt(string(trimQuotes(a.Value.IntValue)), 10, 64)
						r.seq, r.event = n, err == nil
					}
				}
				r.event = r.event && len(r.session) > 0
				records = append(records, r)
			}
		}
	}
	return records, nil
}

func trimQuotes(b []byte) []byte {
	if len(b) >= 2 && b[0] == '"' {
		return b[1 : len(b)-1]
	}
	return b
}
