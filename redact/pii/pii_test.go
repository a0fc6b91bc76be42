package pii_test

import (
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
)

// Numbers from the standards' and schemes' own publications.

func TestCardNumbersPublishedForTestsPass(t *testing.T) {
	for _, s := range []string{"4111111111111111", "4222222222222", "5555555555554444", "2223003122003222", "378282246310005", "371449635398431", "30569309025904", "38520000023237",
		"6011111111111117", "6011000990139424", "3530111333300000", "3566002020360505", "6205500000000000004", "6304000000000000", "4111-1111-1111-1111", "3782 822463 10005"} {
		if !redact.Card([]byte(s)) {
			t.Errorf("%s is refused", s)
		}
	}
	for _, s := range []string{"4111111111111112", "1748503543012", "0000000000000000", "1234567812345670", "411111111111111", "9111111111111111"} {
		if redact.Card([]byte(s)) {
			t.Errorf("%s is accepted", s)
		}
	}
	// ISO/IEC 7812-1 Annex B.
	if !redact.Luhn([]byte("4992739871 6")) || redact.Luhn([]byte("49927398717")) || redact.Luhn([]byte("4")) {
		t.Error("Luhn")
	}
}

// The examples of the IBAN registry (SWIFT).
func TestIBANRegistryExamplesPass(t *testing.T) {
	for _, s := range []string{"AD1200012030200359100100", "AT611904300234573201", "BE68539007547034", "BG80BNBG96611020345678", "CH9300762011623852957", "CY17002001280000001200527600",
		"CZ6508000000192000145399", "DE89370400440532013000", "DK5000400440116243", "EE382200221020145685", "ES9121000418450200051332", "FI2112345600000785", "FR1420041010050500013M02606",
		"GB29NWBK60161331926819", "GB29 NWBK 6016 1331 9268 19", "GI75NWBK000000007099453", "GR1601101250000000012300695", "HR1210010051863000160", "HU42117730161111101800000000",
		"IE29AIBK93115212345678", "IS140159260076545510730339", "IT60X0542811101000000123456", "KW81CBKU0000000000001234560101", "LI21088100002324013AA", "LT121000011101001000", "LU280019400644750000",
		"LV80BANK0000435195001", "MC5811222000010123456789030", "MT84MALT011000012345MTLCAST001S", "NL91ABNA0417164300", "NO9386011117947", "PL61109010140000071219812874", "PT50000201231234567890154",
		"RO49AAAA1B31007593840000", "SA0380000000608010167519", "SE4550000000058398257466", "SI56263300012039086", "SK3112000000198742637541", "SM86U0322509800000000270100", "TN5910006035183598478831", "TR330006100519786457841326"} {
		if !redact.IBAN([]byte(s)) {
			t.Errorf("%s is refused", s)
		}
	}
	for _, s := range []string{"GB29NWBK60161331926818", "XX29NWBK60161331926819", "DE8937040044053201300", "GB"} {
		if redact.IBAN([]byte(s)) {
			t.Errorf("%s is accepted", s)
		}
	}
}

func TestSocialSecurityNumbersFollowTheSSA(t *testing.T) {
	for s, ok := range map[string]bool{"078-05-1120": true, "219-09-9999": true, "000-12-3456": false, "666-12-3456": false, "900-12-3456": false, "123-00-4567": false, "123-45-0000": false, "12-345-6789": true, "123-45-678": false} {
		if redact.SSN([]byte(s)) != ok {
			t.Errorf("%s: %v", s, !ok)
		}
	}
}

// GB 11643-1999, the standard's own examples.
func TestResidentNumbersFollowGB11643(t *testing.T) {
	for s, ok := range map[string]bool{"11010519491231002X": true, "440524188001010014": true, "34052419800101001X": true, "110105194912310021": false, "11010519491331002X": false} {
		if redact.ChineseID([]byte(s)) != ok {
			t.Errorf("%s: %v", s, !ok)
		}
	}
}

func engine(t *testing.T) *redact.Engine {
	t.Helper()
	e, err := redact.New(redact.Options{Policies: []*redact.Policy{pii.Policy()}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestTexts(t *testing.T) {
	e := engine(t)
	for in, want := range map[string]string{
		"mail jane.doe+x@example.co.uk, please":                        "mail [REDACTED:pii-email], please",
		"张伟 <zhang.wei@example.cn>":                                    "张伟 <[REDACTED:pii-email]>",
		"git@github.com:org/repo.git react@18.2.0 logo@2x.png":         "git@github.com:org/repo.git react@18.2.0 logo@2x.png",
		"call +1 (555) 010-0199.":                                      "call [REDACTED:pii-phone].",
		"Tel: 030 23125 680":                                           "Tel: [REDACTED:pii-phone]",
		"card 4111\u00a01111\u00a01111\u00a01111, 5555–5555–5555–4444": "card [REDACTED:pii-card], [REDACTED:pii-card]",
		"卡号：４１１１１１１１１１１１１１１１。":                                         "卡号：[REDACTED:pii-card]。",
		"DE89\u202f3704\u202f0044\u202f0532\u202f0130\u202f00":         "[REDACTED:pii-iban]",
		"+1\u00a0(555)\u00a0010‑0199, jane＠example.com":                "[REDACTED:pii-phone], [REDACTED:pii-email]",
		"2020–2026, ２０２６年５月, 10\u00a0000 €":                            "2020–2026, ２０２６年５月, 10\u00a0000 €",
		"%B4111111111111111^DOE/JANE^2912101?":                         "%B[REDACTED:pii-card]^DOE/JANE^2912101?",
		"ls ~/.claude/projects/-home-jane-src /-Users-bob-x":           "ls ~/.claude/projects/-home-[REDACTED:pii-home]-src /-Users-[REDACTED:pii-home]-x",
		"take/-home-runner-x the-users-x":                              "take/-home-runner-x the-users-x",
		"+86 138 0000 0000 now":                                        "[REDACTED:pii-phone] now",
		"x tél. 01 23 45 67 89 y":                                      "x tél. [REDACTED:pii-phone] y",
		"+33 1 23 45 67 89":                                            "[REDACTED:pii-phone]",
		"080-0000-7012":                                                "[REDACTED:pii-phone]",
		"build 744-9020.54 runtime v7.4.11701.325 2026-05-25":          "build 744-9020.54 runtime v7.4.11701.325 2026-05-25",
		"at 1748503543012 took 128ms":                                  "at 1748503543012 took 128ms",
		"12:30:45 +0200 offset":                                        "12:30:45 +0200 offset",
		"card 4242 4242 4242 4242 exp":                                 "card [REDACTED:pii-card] exp",
		"order 4242424242424241":                                       "order 4242424242424241",
		"GB82 WEST 1234 5698 7654 32.":                                 "[REDACTED:pii-iban].",
		"ssn 078-05-1120":                                              "ssn [REDACTED:pii-us-ssn]",
		"id 11010519491231002X":                                        "id 11010519491231002X",
		"身份证11010519491231002X已":                                       "身份证[REDACTED:pii-cn-id]已",
		"/home/jane.doe/x /Users/jane/y /home/runner/z":                "/home/[REDACTED:pii-home]/x /Users/[REDACTED:pii-home]/y /home/runner/z",
		`C:\Users\Jane Doe\x`:                                          `C:\Users\[REDACTED:pii-home]\x`,
		"https://api.example.com/home/items/users/12":                  "https://api.example.com/home/items/users/12",
		"postgres://a:b4Cx@h/d":                                        "postgres://a:[REDACTED:pii-url-userinfo]@h/d",
		"ip 203.0.113.42, passport K559MRZJ0, born 06.10.1957":         "ip 203.0.113.42, passport K559MRZJ0, born 06.10.1957",
	} {
		out, _, err := e.Text(nil, in)
		if err != nil || string(out) != want {
			t.Errorf("%q\n gives %q\n  want %q", in, out, want)
		}
	}
}

func TestNumbersInJSONByTheirKeys(t *testing.T) {
	e := engine(t)
	in := `{"phone":13125550105,"total":13125550105,"pan":378282246310005,"id":378282246310006,"telefon":"030 23125060"}`
	out, _, err := e.JSON(nil, []byte(in))
	want := `{"phone":"[REDACTED:pii-phone]","total":13125550105,"pan":"[REDACTED:pii-card]","id":378282246310006,"telefon":"[REDACTED:pii-phone]"}`
	if err != nil || string(out) != want {
		t.Errorf("%s\n%s", out, want)
	}
}

func TestOptInRulesAreOffByDefault(t *testing.T) {
	if ids := strings.Join(engine(t).Rules(), " "); strings.Contains(ids, "ipv4") || !strings.Contains(ids, "pii-email") {
		t.Error(ids)
	}
}

func TestSocialSecurityNumbersUnderTheirKey(t *testing.T) {
	e := engine(t)
	for in, want := range map[string]string{
		`{"ssn":"078051120","n":1}`:                                     `{"ssn":"[REDACTED:pii-us-ssn]","n":1}`,
		`{"applicantSsn":219099999,"social_security_number":219099999}`: `{"applicantSsn":"[REDACTED:pii-us-ssn]","social_security_number":"[REDACTED:pii-us-ssn]"}`,
		`{"ssn":"000123456","session":219099999}`:                       `{"ssn":"000123456","session":219099999}`,
	} {
		out, _, err := e.JSON(nil, []byte(in))
		if err != nil || string(out) != want {
			t.Errorf("%s: %s %v", in, out, err)
		}
	}
}
