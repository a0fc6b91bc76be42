package workload

import (
	"math/rand/v2"
	"strings"
)

// Secret is a value that was planted: made up, of a known shape, and nothing
// that a receiver may see. It holds no character that JSON escapes.
type Secret struct {
	Kind  string
	Value string
}

const (
	alnum  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	digits = "0123456789"
	lower  = "abcdefghijklmnopqrstuvwxyz0123456789"
)

func from(r *rand.Rand, alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

// plant returns the next secret and the words around it.
func plant(r *rand.Rand, n int) (Secret, string) {
	var s Secret
	var text string
	switch n % 9 {
	case 0:
		s = Secret{"github-pat", "ghp_" + from(r, alnum, 36)}
		text = "export GITHUB_TOKEN=" + s.Value
	case 1:
		s = Secret{"aws-access-key", "AKIA" + from(r, base32, 16)}
		text = "aws_access_key_id = " + s.Value
	case 2:
		s = Secret{"anthropic-api-key", "sk-ant-api03-" + from(r, alnum, 93) + "AA"}
		text = "using key " + s.Value + " for requests"
	case 3:
		s = Secret{"slack-bot-token", "xoxb-" + from(r, digits, 12) + "-" + from(r, digits, 12) + "-" + from(r, alnum, 24)}
		text = "slack: " + s.Value
	case 4:
		s = Secret{"bearer", from(r, lower, 40)}
		text = "Authorization: Bearer " + s.Value
	case 5:
		s = Secret{"password", from(r, alnum, 14) + "!x9"}
		text = "DB_PASSWORD=" + s.Value
	case 6:
		s = Secret{"email", from(r, lower, 9) + "@" + from(r, lower[:26], 8) + ".org"}
		text = "contact " + s.Value + " about it"
	case 7:
		s = Secret{"card", card(r)}
		text = "paid with " + s.Value + " yesterday"
	default:
		s = Secret{"gitlab-pat", "glpat-" + from(r, alnum, 20)}
		text = "git clone https://oauth2:" + s.Value + "@git.example.com/app.git"
	}
	return s, text
}

// card is a number of sixteen digits with a right check digit.
func card(r *rand.Rand) string {
	d := "4" + from(r, digits, 14)
	sum := 0
	for i := range d {
		n := int(d[i] - '0')
		if i%2 == 0 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return d + string(rune('0'+(10-sum%10)%10))
}

// SecretKinds are the kinds that Generate plants, in their order.
func SecretKinds() []string {
	r := rand.New(rand.NewPCG(1, 1))
	var kinds []string
	for i := range 9 {
		s, _ := plant(r, i)
		kinds = append(kinds, s.Kind)
	}
	return kinds
}

// Visible counts the secrets that text holds, in one pass over it.
func Visible(text []byte, secrets []Secret) (n int, byKind map[string]int) {
	const head = 8 // no value is shorter
	type start = [head]byte
	starts := map[start][]int{}
	var likely [1 << 16]bool // by the first two bytes, so that most places cost nothing
	for i, s := range secrets {
		k := start([]byte(s.Value[:head]))
		starts[k] = append(starts[k], i)
		likely[int(k[0])<<8|int(k[1])] = true
	}
	seen := make([]bool, len(secrets))
	byKind = map[string]int{}
	for at := 0; at+head <= len(text); at++ {
		if !likely[int(text[at])<<8|int(text[at+1])] {
			continue
		}
		for _, i := range starts[start(text[at:at+head])] {
			if s := secrets[i]; !seen[i] && strings.HasPrefix(string(text[at:min(at+len(s.Value), len(text))]), s.Value) {
				seen[i] = true
				n++
				byKind[s.Kind]++
			}
		}
	}
	return n, byKind
}
