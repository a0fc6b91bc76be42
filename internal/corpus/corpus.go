// Package corpus generates records like those of an agent's ledger, for
// benchmarks and for tests of what must stay: source code, logs, prose in
// CJK, base64 blobs, lock files, git logs, and records with fake secrets. The
// same seed gives the same records on every machine.
package corpus

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Class is a kind of record.
type Class string

// The classes. Mixed has 30 % base64 and 0.1 % lines with secrets, by size.
const (
	Code    Class = "code"
	Logs    Class = "logs"
	CJK     Class = "cjk"
	Base64  Class = "base64"
	Lock    Class = "lock"
	Git     Class = "git"
	Secrets Class = "secrets"
	Mixed   Class = "mixed"
)

// Classes lists them all.
var Classes = []Class{Code, Logs, CJK, Base64, Lock, Git, Secrets, Mixed}

// Generator makes records.
type Generator struct {
	r       *rand.Rand
	planted int // bytes of secret lines made so far
}

// New makes a generator.
func New(seed uint64) *Generator {
	return &Generator{r: rand.New(rand.NewPCG(seed, 0x6f74656c))}
}

// Records makes JSON records of a class until they have size bytes together.
func (g *Generator) Records(c Class, size int) [][]byte {
	var out [][]byte
	for n := 0; n < size; {
		r := g.Record(c)
		out = append(out, r)
		n += len(r)
	}
	return out
}

// Record makes one JSON record, a tool result.
func (g *Generator) Record(c Class) []byte {
	text := g.Text(c)
	rec := map[string]any{
		"type": "tool/result", "seq": g.r.IntN(100000), "time": 1748503543012 + g.r.Int64N(1e10),
		"data": map[string]any{"turn": g.r.IntN(9) + 1, "step": g.r.IntN(9) + 1, "message": map[string]any{
			"id": g.uuid(), "role": "tool", "content": []any{map[string]any{"type": "text", "text": text}}},
			"usage": map[string]any{"input_tokens": g.r.IntN(100000), "output_tokens": g.r.IntN(5000)}},
	}
	b, err := json.Marshal(rec)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return b
}

// Text makes the text of one record.
func (g *Generator) Text(c Class) string {
	switch c {
	case Code:
		return g.lines(40, g.codeLine)
	case Logs:
		return g.lines(40, g.logLine)
	case CJK:
		return g.lines(20, g.cjkLine)
	case Base64:
		return "data:image/png;base64," + g.blob(4096+g.r.IntN(8192))
	case Lock:
		return g.lines(30, g.lockLine)
	case Git:
		return g.lines(30, g.gitLine)
	case Secrets:
		secret := g.secretLine()
		g.planted += len(secret)
		return g.lines(6, g.codeLine) + secret + "\n" + g.lines(6, g.logLine)
	}
	switch n := g.r.IntN(1000); {
	case n < 77:
		return g.Text(Base64)
	case n < 129:
		return g.Text(Secrets)
	case n < 530:
		return g.Text(Code)
	case n < 830:
		return g.Text(Logs)
	case n < 900:
		return g.Text(CJK)
	case n < 950:
		return g.Text(Lock)
	}
	return g.Text(Git)
}

func (g *Generator) lines(n int, line func() string) string {
	var b strings.Builder
	for i := 0; i < n; i++ {
		b.WriteString(line())
		b.WriteByte('\n')
	}
	return b.String()
}

func (g *Generator) pick(s []string) string { return s[g.r.IntN(len(s))] }

func (g *Generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.r.Uint32())
	}
	return b
}

func (g *Generator) blob(n int) string {
	b := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), g.bytes(n)...)
	return base64.StdEncoding.EncodeToString(b)
}

func (g *Generator) hex(n int) string { return hex.EncodeToString(g.bytes((n + 1) / 2))[:n] }

func (g *Generator) uuid() string {
	h := g.hex(32)
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	digits = "0123456789"
	alnum  = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + digits
)

func (g *Generator) chars(set string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = set[g.r.IntN(len(set))]
	}
	return string(b)
}

var (
	nouns = []string{"buffer", "cursor", "queue", "handler", "session", "token", "parser", "index", "cache", "stream", "worker", "socket", "shard", "ledger", "planner", "key", "auth", "client", "record", "batch", "schema", "payload"}
	verbs = []string{"open", "read", "parse", "flush", "merge", "render", "commit", "append", "drain", "resolve", "validate", "retry", "encode", "attach"}
	hanzi = []string{"请把日志级别改成", "然后重新运行测试", "构建完成后请总结结果", "缓存已清理", "这个函数需要一个测试", "キャッシュを消してから", "もう一度ビルドしてください", "ラベルを修正しました", "빌드가 끝나면 결과를", "요약해 주세요", "密码字段的校验逻辑在哪里", "我想把长度限制改掉"}
)

func (g *Generator) codeLine() string {
	n, m, v := g.pick(nouns), g.pick(nouns), g.pick(verbs)
	switch g.r.IntN(14) {
	case 0:
		return fmt.Sprintf("func (c *Client) %s%s(ctx context.Context, %s string) error {", v, strings.ToUpper(n[:1])+n[1:], m)
	case 1:
		return fmt.Sprintf("\tif err := %s.%s(%s); err != nil {", n, v, m)
	case 2:
		return fmt.Sprintf("\t\treturn fmt.Errorf(\"%s %s: %%w\", err)", v, n)
	case 3:
		return fmt.Sprintf("\t%s := os.Getenv(\"%s_%s\")", n, strings.ToUpper(n), strings.ToUpper(m))
	case 4:
		return fmt.Sprintf("  const %s = await %s(%s, { timeout: %d, retries: %d });", n, v, m, g.r.IntN(9000), g.r.IntN(9))
	case 5:
		return fmt.Sprintf("// %s the %s before the %s is closed; see RFC %d.", v, n, m, g.r.IntN(9000))
	case 6:
		return fmt.Sprintf("    %s = self.%s.next_%s()", n, m, n)
	case 7:
		return fmt.Sprintf("\tfor i := 0; i < len(%s); i++ {", n)
	case 8:
		return fmt.Sprintf("import { %s, %s } from './%s';", n, m, v)
	case 9:
		return fmt.Sprintf("  max_tokens: %d, temperature: 0.%d,", g.r.IntN(9000), g.r.IntN(9))
	case 10:
		return fmt.Sprintf("\tcase %s.%s:", n, strings.ToUpper(m))
	case 11:
		return fmt.Sprintf("export async function %s(%sKey: string, token?: string): Promise<void> {", v, n)
	case 12:
		return fmt.Sprintf("\tpassword := %s.%s(%q)", n, v, m)
	}
	return "\t}"
}

func (g *Generator) stamp() string {
	return fmt.Sprintf("2026-%02d-%02dT%02d:%02d:%02d.%03dZ", 1+g.r.IntN(12), 1+g.r.IntN(28), g.r.IntN(24), g.r.IntN(60), g.r.IntN(60), g.r.IntN(1000))
}

func (g *Generator) logLine() string {
	n, v := g.pick(nouns), g.pick(verbs)
	switch g.r.IntN(8) {
	case 0:
		return fmt.Sprintf("%s INFO [%s] %s took %dms input_tokens=%d", g.stamp(), n, v, g.r.IntN(5000), g.r.IntN(100000))
	case 1:
		return fmt.Sprintf("%s WARN [%s] retry %d for request %s", g.stamp(), n, g.r.IntN(9), g.uuid())
	case 2:
		return fmt.Sprintf("%s DEBUG [%s] startTime=%d nanos=%d build %d-%d", g.stamp(), n, 1748503543012+g.r.Int64N(1e10), 1748503543012000000+g.r.Int64N(1e15), g.r.IntN(999), g.r.IntN(9999))
	case 3:
		return fmt.Sprintf("    at %s%s (/srv/app/dist/%s.js:%d:%d)", v, n, n, g.r.IntN(999), g.r.IntN(99))
	case 4:
		return fmt.Sprintf("goroutine %d [running]: main.%s(0x%s, 0x0)", g.r.IntN(999), v, g.hex(12))
	case 5:
		return fmt.Sprintf("GET /v1/%s/%s 200 %dms - %s", n, g.hex(24), g.r.IntN(999), g.uuid())
	case 6:
		return fmt.Sprintf("\x1b[32m✓\x1b[0m src/%s.test.ts \x1b[2m(%d ms)\x1b[0m", n, g.r.IntN(99))
	}
	return fmt.Sprintf("%d,%d.%02d,%d,2026-%02d-%02d,%d", g.r.IntN(9999), g.r.IntN(999), g.r.IntN(99), g.r.IntN(999999), 1+g.r.IntN(12), 1+g.r.IntN(28), g.r.IntN(2))
}

func (g *Generator) cjkLine() string {
	return g.pick(hanzi) + "，" + g.pick(hanzi) + " " + g.pick(nouns) + "。" + g.pick(hanzi)
}

func (g *Generator) lockLine() string {
	n := g.pick(nouns) + g.pick(verbs)
	switch g.r.IntN(5) {
	case 0:
		return fmt.Sprintf("    \"integrity\": \"sha512-%s\"", base64.StdEncoding.EncodeToString(g.bytes(64)))
	case 1:
		return fmt.Sprintf("example.com/%s v%d.%d.%d h1:%s", n, g.r.IntN(30), g.r.IntN(30), g.r.IntN(99), base64.StdEncoding.EncodeToString(g.bytes(32)))
	case 2:
		return fmt.Sprintf("  resolved \"https://registry.example.org/%s/-/%s-%d.%d.%d.tgz#%s\"", n, n, g.r.IntN(30), g.r.IntN(30), g.r.IntN(99), g.hex(40))
	case 3:
		return fmt.Sprintf("checksum = \"%s\"", g.hex(64))
	}
	return fmt.Sprintf("registry.example.com/%s@sha256:%s", n, g.hex(64))
}

func (g *Generator) gitLine() string {
	switch g.r.IntN(5) {
	case 0:
		return "commit " + g.hex(40)
	case 1:
		return fmt.Sprintf("index %s..%s 100644", g.hex(7), g.hex(7))
	case 2:
		return fmt.Sprintf("    %s the %s (%s)", g.pick(verbs), g.pick(nouns), g.hex(7))
	case 3:
		return fmt.Sprintf("+++ b/src/%s.ts", g.pick(nouns))
	}
	return fmt.Sprintf("@@ -%d,%d +%d,%d @@", g.r.IntN(99), g.r.IntN(9), g.r.IntN(99), g.r.IntN(9))
}

func (g *Generator) secretLine() string {
	switch g.r.IntN(8) {
	case 0:
		return "GITHUB_TOKEN=ghp_" + g.chars(alnum, 36)
	case 1:
		return "export AWS_SECRET_ACCESS_KEY=" + g.chars(alnum+"/+", 40)
	case 2:
		return "Authorization: Bearer " + g.chars(alnum, 40)
	case 3:
		return "postgres://app:" + g.chars(alnum, 20) + "@db.example.internal:5432/app"
	case 4:
		return "mail from " + g.chars(lower, 8) + "@" + g.chars(lower, 7) + ".example"
	case 5:
		return "SLACK=xoxb-" + g.chars(digits, 12) + "-" + g.chars(digits, 12) + "-" + g.chars(alnum, 24)
	case 6:
		return "DB_PASSWORD=\"" + g.chars(alnum+"!@%", 16) + "\""
	}
	return "sk-proj-" + g.chars(alnum+"-_", 48)
}

// Image makes base64 of about n characters that holds a picture.
func (g *Generator) Image(n int) string { return g.blob(n * 3 / 4) }
