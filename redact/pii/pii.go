// Package pii is the built-in rule set for personal data: e-mail addresses,
// telephone, card, account and social security numbers, credentials in URLs
// and the user's name in paths of home directories. More rules run when a
// policy enables them by id (extend.enabledRules): pii-cn-id-bare, pii-ipv4,
// pii-ipv6, pii-mac, pii-passport, pii-birth-date.
package pii

import (
	"sync"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// Name is the name under which policies extend the set.
const Name = "builtin:pii"

// version goes up when the rules change: it is part of the policy hash.
const version = 5

var build = sync.OnceValue(func() *redact.Policy {
	rs := []redact.Rule{
		{ID: "pii-email", Description: "An e-mail address.", Literals: []string{"@"}, Find: findEmail},
		{ID: "pii-phone", Description: "A telephone number: E.164, or a national form with a word that says so.", Numbers: true, Find: findPhone, Key: phoneKey, Accept: phoneValue},
		{ID: "pii-card", Description: "A payment card number: issuer, length and Luhn digit.", Numbers: true, Digits: 12, Find: findCard},
		{ID: "pii-iban", Description: "An IBAN with the right length and checksum.", Numbers: true, Digits: 10, Runs: true, Find: findIBAN},
		{ID: "pii-us-ssn", Description: "A US social security number in its usual form, or with a word that says so.", Numbers: true, Digits: 9, Find: findSSN, Key: ssnKey, Accept: ssnValue},
		{ID: "pii-url-userinfo", Description: "The password in a URL's authority.", Literals: []string{"://"}, Find: shape.UserInfo},
		{ID: "pii-home", Description: "The user's segment in the path of a home directory.", Literals: []string{"/home/", "/users/", `\users\`, `\home\`, "/-home-", "/-users-", "/documents and settings/", `\documents and settings\`}, Find: findHome},
		{ID: "pii-cn-id", Description: "A Chinese resident identity number with its check character, where a word says so.", Numbers: true, Digits: 17, Find: findNamedChineseID, Key: chineseIDKey, Accept: chineseIDValue},
		{ID: "pii-cn-id-bare", OptIn: true, Description: "A Chinese resident identity number with its check character, anywhere.", Numbers: true, Digits: 17, Find: findChineseID},
		{ID: "pii-ipv4", OptIn: true, Description: "An IPv4 address.", Literals: []string{"."}, Find: findIPv4},
		{ID: "pii-ipv6", OptIn: true, Description: "An IPv6 address.", Literals: []string{"::", ":"}, Find: findIPv6},
		{ID: "pii-mac", OptIn: true, Description: "A hardware address.", Literals: []string{":", "-"}, Find: findMAC},
		{ID: "pii-passport", OptIn: true, Description: "A passport number, by the key or word before it.", Literals: []string{"passport", "护照", "passeport", "reisepass", "pasaporte"}, Find: findPassport, Key: passportKey},
		{ID: "pii-birth-date", OptIn: true, Description: "A date of birth, by the key or word before it.", Literals: []string{"birth", "dob", "geboren", "geburtsdatum", "出生", "生年月日"}, Find: findBirthDate, Key: birthKey},
	}
	for i := range rs {
		rs[i].Rank = redact.RankPII
		rs[i].Version = version
	}
	return redact.NewPolicy(Name, rs...)
})

// Policy is "builtin:pii". It is built once and shared.
func Policy() *redact.Policy { return build() }
