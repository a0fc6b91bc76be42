package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Value redacts a decoded JSON value: nil, bool, numbers, string, []any and
// map[string]any, and whatever else encoding/json can write. The result is
// made of the same kinds, numbers as json.Number; the argument is not
// changed.
func (e *Engine) Value(v any) (any, *Report, error) {
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, nil, fmt.Errorf("redact: the value is not JSON: %T", v)
	}
	out, rep, err := e.JSON(nil, in.Bytes())
	if err != nil {
		return nil, nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	dec.UseNumber()
	var res any
	if err := dec.Decode(&res); err != nil {
		return nil, nil, ErrInternal
	}
	return res, rep, nil
}

// Map redacts a map as Value does. A whole value that was dropped gives nil.
func (e *Engine) Map(m map[string]any) (map[string]any, *Report, error) {
	v, rep, err := e.Value(m)
	if err != nil {
		return nil, nil, err
	}
	res, _ := v.(map[string]any)
	return res, rep, nil
}
