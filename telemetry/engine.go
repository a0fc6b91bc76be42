package telemetry

import "github.com/otel-bridge/otel-bridge/redact"

// NewEngine makes the Engine that redaction needs of a redact.Engine.
func NewEngine(e *redact.Engine) Engine { return engine{e} }

type engine struct{ *redact.Engine }

func (e engine) JSON(dst, src []byte, f *Findings) ([]byte, error) {
	out, rep, err := e.Engine.JSON(dst, src)
	if err != nil {
		return nil, err
	}
	f.report(rep)
	return out, nil
}

func (e engine) Text(dst []byte, src string, f *Findings) ([]byte, error) {
	out, rep, err := e.Engine.Text(dst, src)
	if err != nil {
		return nil, err
	}
	f.report(rep)
	return out, nil
}

func (f *Findings) report(rep *redact.Report) {
	for rule, n := range rep.Counts {
		f.Add(rule, int64(n))
	}
	if rep.Withhold != "" {
		f.Withhold = true
	}
}
