package redact_test

import (
	"fmt"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

// One engine for everything: it is compiled once and safe for concurrent use.
func ExampleEngine_JSON() {
	engine, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), pii.Policy()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	record := []byte(`{"cmd":"login","args":"{\"password\":\"tr0ub4dor&3\"}","by":"jane@example.com","port":8080}`)
	out, report, err := engine.JSON(nil, record)
	if err != nil {
		fmt.Println("withheld") // never pass the input on then
		return
	}
	fmt.Println(string(out))
	fmt.Println(report.Counts["bridge-key-name"], report.Counts["pii-email"])
	// Output:
	// {"cmd":"login","args":"{\"password\":\"[REDACTED:bridge-key-name]\"}","by":"[REDACTED:pii-email]","port":8080}
	// 1 1
}

// A rule of one's own, in gitleaks' form, beside a built-in set. With the action
// token equal values stay equal, under a key that is not given away.
func ExampleParsePolicy() {
	own, err := redact.ParsePolicy("own", []byte(`
[[rules]]
id = "acme-order"
regex = '''ORDER-\d{6}'''
keywords = ["order-"]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := redact.New(redact.Options{Policies: []*redact.Policy{pii.Policy(), own}})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, _, err := engine.Text(nil, "ORDER-123456 is for jane@example.com")
	fmt.Println(string(out), err)
	// Output:
	// [REDACTED:acme-order] is for [REDACTED:pii-email] <nil>
}
