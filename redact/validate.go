package redact

import (
	"math/big"
	"sort"
)

// validators decide by computation whether a match is what it looks like.
// They see the match as it stands, separators included.
var validators = map[string]func(match []byte) bool{
	"luhn":  Luhn,
	"card":  Card,
	"iban":  IBAN,
	"ssn":   SSN,
	"cn-id": ChineseID,
}

// Validators lists the names that a rule's validator field may have.
func Validators() []string {
	names := make([]string, 0, len(validators))
	for n := range validators {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

func digitsOf(b []byte) ([]byte, bool) {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			out = append(out, c-'0')
		case c == ' ' || c == '-' || c == '.':
		default:
			return nil, false
		}
	}
	return out, true
}

// Luhn is the check of ISO/IEC 7812-1 Annex B over the digits of b.
func Luhn(b []byte) bool {
	d, ok := digitsOf(b)
	return ok && len(d) > 1 && luhn(d)
}

func luhn(d []byte) bool {
	sum := 0
	for i := range d {
		n := int(d[len(d)-1-i])
		if i%2 == 1 {
			n *= 2
			if n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}

// Card accepts a payment card number: an issuer's prefix with a length that
// issuer uses, and the Luhn digit.
func Card(b []byte) bool {
	d, ok := digitsOf(b)
	if !ok || len(d) < 12 || len(d) > 19 || !luhn(d) {
		return false
	}
	same := true
	for _, c := range d[1:] {
		same = same && c == d[0]
	}
	if same {
		return false
	}
	n := 0
	for _, c := range d[:6] {
		n = n*10 + int(c)
	}
	in := func(lo, hi int, digits int) bool {
		p := n
		for i := 6; i > digits; i-- {
			p /= 10
		}
		return lo <= p && p <= hi
	}
	l := len(d)
	switch {
	case in(4, 4, 1): // Visa
		return l == 13 || l == 16 || l == 19
	case in(34, 34, 2), in(37, 37, 2): // American Express
		return l == 15
	case in(51, 55, 2), in(2221, 2720, 4): // Mastercard
		return l == 16
	case in(6011, 6011, 4), in(644, 649, 3), in(65, 65, 2): // Discover
		return l >= 16
	case in(622126, 622925, 6): // Discover and UnionPay
		return l >= 16
	case in(3528, 3589, 4): // JCB
		return l >= 16
	case in(300, 305, 3), in(309, 309, 3), in(36, 36, 2), in(38, 39, 2): // Diners Club
		return l >= 14
	case in(62, 62, 2), in(81, 81, 2): // UnionPay
		return l >= 16
	case in(50, 50, 2), in(56, 58, 2), in(63, 63, 2), in(67, 67, 2), in(60, 60, 2), in(69, 69, 2): // Maestro and kin
		return l >= 12
	case in(2200, 2204, 4): // Mir
		return l >= 16
	}
	return false
}

// ibanLength is the IBAN registry's table (SWIFT, release 99): country to
// number of characters.
var ibanLength = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29, "BY": 28,
	"CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
	"FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28,
	"IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
	"LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28,
	"NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24,
	"SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26,
	"UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
}

// IBANLength is the length of an IBAN of the country, 0 for none.
func IBANLength(country string) int { return ibanLength[country] }

// IBAN accepts an account number by its country's length and the checksum of
// ISO 7064 MOD 97-10. Spaces and dashes between groups are skipped.
func IBAN(b []byte) bool {
	s := make([]byte, 0, 34)
	for _, c := range b {
		switch {
		case c == ' ' || c == '-':
			continue
		case 'a' <= c && c <= 'z':
			c -= 32
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		default:
			return false
		}
		if len(s) == 34 {
			return false
		}
		s = append(s, c)
	}
	if len(s) < 15 || ibanLength[string(s[:2])] != len(s) || s[2] > '9' || s[3] > '9' {
		return false
	}
	var digits []byte
	for _, c := range append(append([]byte(nil), s[4:]...), s[:4]...) {
		if c >= 'A' {
			n := c - 'A' + 10
			digits = append(digits, '0'+n/10, '0'+n%10)
			continue
		}
		digits = append(digits, c)
	}
	n, ok := new(big.Int).SetString(string(digits), 10)
	return ok && new(big.Int).Mod(n, big.NewInt(97)).Int64() == 1
}

// SSN accepts a US social security number by the rules of the SSA: no area
// 000, 666 or 900 to 999, no group 00, no serial 0000.
func SSN(b []byte) bool {
	d, ok := digitsOf(b)
	if !ok || len(d) != 9 {
		return false
	}
	area := int(d[0])*100 + int(d[1])*10 + int(d[2])
	group := int(d[3])*10 + int(d[4])
	serial := int(d[5])*1000 + int(d[6])*100 + int(d[7])*10 + int(d[8])
	return area != 0 && area != 666 && area < 900 && group != 0 && serial != 0
}

// ChineseID accepts a resident identity number by GB 11643-1999: a birth date
// and the check character of ISO 7064 MOD 11-2.
func ChineseID(b []byte) bool {
	if len(b) != 18 {
		return false
	}
	weights := [17]int{7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2}
	sum := 0
	for i := 0; i < 17; i++ {
		if b[i] < '0' || b[i] > '9' {
			return false
		}
		sum += int(b[i]-'0') * weights[i]
	}
	num := func(s []byte) int {
		n := 0
		for _, c := range s {
			n = n*10 + int(c-'0')
		}
		return n
	}
	year, month, day := num(b[6:10]), num(b[10:12]), num(b[12:14])
	if b[0] == '0' || year < 1800 || year > 2099 || month < 1 || month > 12 || day < 1 || day > 31 {
		return false
	}
	last := b[17]
	if last == 'x' {
		last = 'X'
	}
	return last == "10X98765432"[sum%11]
}
