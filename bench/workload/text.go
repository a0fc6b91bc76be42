package workload

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// fragment is a text in the forms in which ledgers hold it, made once and used
// many times, so that writing a ledger is copying.
type fragment struct {
	once   string   // inside a JSON string
	pieces []string // the same cut like a model's stream
}

func newFragment(text string, stream bool) fragment {
	f := fragment{once: inner(text)}
	if stream {
		f.pieces = cut(text)
	}
	return f
}

// newArguments is a tool call's arguments: an object as JSON text.
func newArguments(v any) fragment {
	text, _ := json.Marshal(v)
	f := fragment{once: inner(string(text))}
	f.pieces = cut(string(text))
	return f
}

// inner is the text as it stands between the quotes of a JSON string, written
// as JavaScript writes it: no escapes for <, > and &.
func inner(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always encodes
	s := strings.TrimSuffix(b.String(), "\n")
	return s[1 : len(s)-1]
}

// cut splits a text into runs of about five to twelve bytes, each escaped by itself.
func cut(text string) []string {
	var pieces []string
	for i := 0; len(text) > 0; i++ {
		n := min(len(text), 5+i*3%8)
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		pieces = append(pieces, inner(text[:n]))
		text = text[n:]
	}
	return pieces
}

// pool holds the fragments of one seed.
type pool struct {
	prose, cjk, prompts   []fragment // streamed
	code, logs, listing   []fragment // tool output
	big                   []fragment // tool output of 100 to 400 KB
	commands, reads, edit []fragment // arguments
}

const (
	words = "the a of to and in is that for it as with on be this are from or an by at not have which file test error function value return line build run check module session request reader writer buffer index offset commit state event record policy token count after before when then because first last only each other same name path type call result output input stream message context window cursor segment header trailer checksum recovery retry timeout deadline receiver exporter collector pipeline queue batch redaction pattern prefix suffix match rule keyword entropy allow list number string object array key null boolean integer double unicode surrogate escape quote newline"
	han   = "仓库里有两个文件首先检查目录然后读取配置测试失败因为路径不存在请统计行数并修复错误我们需要重新运行构建以确认结果函数返回值应当是空的缓冲区大小必须大于零时间戳使用毫秒会话记录写入磁盘之后才能确认接收方已经接受所有数据"
)

var vocabulary = strings.Fields(words)

func newPool(r *rand.Rand) *pool {
	p := &pool{}
	for range 400 {
		p.prose = append(p.prose, newFragment(prose(r, 80+r.IntN(700)), true))
	}
	for range 120 {
		p.cjk = append(p.cjk, newFragment(chinese(r, 30+r.IntN(160)), true))
	}
	for range 120 {
		p.prompts = append(p.prompts, newFragment(prose(r, 40+r.IntN(900)), false))
	}
	for range 160 {
		p.code = append(p.code, newFragment(source(r, 800+r.IntN(9000)), false))
	}
	for range 120 {
		p.logs = append(p.logs, newFragment(logLines(r, 600+r.IntN(12000)), false))
	}
	for range 120 {
		p.listing = append(p.listing, newFragment(listing(r, 100+r.IntN(2500)), false))
	}
	for i := range 8 {
		size := 100_000 + r.IntN(300_000)
		text := logLines(r, size)
		switch i % 4 {
		case 1:
			text = source(r, size)
		case 2:
			text = lockFile(r, size)
		}
		p.big = append(p.big, newFragment(text, false))
	}
	for range 100 {
		p.commands = append(p.commands, newArguments(map[string]any{"command": command(r)}))
		p.reads = append(p.reads, newArguments(map[string]any{"file_path": "/srv/app/" + fileName(r), "offset": r.IntN(900)}))
		p.edit = append(p.edit, newArguments(map[string]any{"file_path": "/srv/app/" + fileName(r),
			"old_string": source(r, 60+r.IntN(500)), "new_string": source(r, 60+r.IntN(700))}))
	}
	return p
}

func word(r *rand.Rand) string { return vocabulary[r.IntN(len(vocabulary))] }

func prose(r *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		n := 5 + r.IntN(14)
		for i := range n {
			w := word(r)
			if i == 0 {
				w = strings.ToUpper(w[:1]) + w[1:]
			} else {
				b.WriteByte(' ')
			}
			b.WriteString(w)
			if i == 3 && n > 12 {
				b.WriteByte(',')
			}
		}
		b.WriteString([]string{". ", ". ", ".\n\n", "? ", ": `" + fileName(r) + "`. "}[r.IntN(5)])
	}
	return b.String()
}

func chinese(r *rand.Rand, runes int) string {
	all := []rune(han)
	var b strings.Builder
	for n := 0; n < runes; {
		k := 6 + r.IntN(16)
		at := r.IntN(len(all) - k)
		b.WriteString(string(all[at : at+k]))
		b.WriteString([]string{"，", "。", "；", " main.go ", "✅"}[r.IntN(5)])
		n += k + 1
	}
	return b.String()
}

func identifier(r *rand.Rand) string {
	a, b := word(r), word(r)
	return a + strings.ToUpper(b[:1]) + b[1:]
}

func fileName(r *rand.Rand) string {
	return word(r) + "/" + word(r) + []string{".go", ".ts", ".py", "_test.go", ".json", ".md"}[r.IntN(6)]
}

func source(r *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		f := identifier(r)
		fmt.Fprintf(&b, "// %s %s\nfunc (%c *%s) %s(ctx context.Context, %s []byte) (int, error) {\n", f, strings.TrimSpace(prose(r, 30)), 'a'+r.IntN(26), identifier(r), f, word(r))
		for range 2 + r.IntN(9) {
			switch r.IntN(6) {
			case 0:
				fmt.Fprintf(&b, "\tif %s != nil {\n\t\treturn %d, fmt.Errorf(\"%s %s: %%w\", err)\n\t}\n", word(r), r.IntN(4), word(r), word(r))
			case 1:
				fmt.Fprintf(&b, "\tfor i := range %s.%s {\n\t\t%s[i] ^= 0x%02x\n\t}\n", word(r), identifier(r), word(r), r.IntN(256))
			case 2:
				fmt.Fprintf(&b, "\tconst %s = %q // %s\n", identifier(r), word(r)+"-"+word(r), word(r))
			case 3:
				fmt.Fprintf(&b, "\t%s := &%s{%s: %d, max_tokens: %d}\n", word(r), identifier(r), word(r), r.IntN(100000), 1024<<r.IntN(5))
			default:
				fmt.Fprintf(&b, "\t%s.%s(%s, len(%s)<<%d)\n", word(r), identifier(r), identifier(r), word(r), r.IntN(9))
			}
		}
		b.WriteString("\treturn len(dst), nil\n}\n\n")
	}
	return b.String()
}

func hexes(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[r.IntN(16)]
	}
	return string(b)
}

func uuid(r *rand.Rand) string {
	return hexes(r, 8) + "-" + hexes(r, 4) + "-4" + hexes(r, 3) + "-a" + hexes(r, 3) + "-" + hexes(r, 12)
}

func logLines(r *rand.Rand, size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "2026-11-%02dT%02d:%02d:%02d.%03dZ ", 1+r.IntN(30), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000))
		switch r.IntN(5) {
		case 0:
			fmt.Fprintf(&b, "INFO req=%s method=GET path=/api/v1/%s/%d status=200 dur=%dus\n", uuid(r), word(r), r.IntN(100000), r.IntN(90000))
		case 1:
			fmt.Fprintf(&b, "WARN  %s %s took %d.%02ds (limit %d)\n", identifier(r), word(r), r.IntN(20), r.IntN(100), r.IntN(30))
		case 2:
			fmt.Fprintf(&b, "DEBUG {\"level\":\"debug\",\"msg\":\"%s %s\",\"n\":%d,\"ok\":%t}\n", word(r), word(r), r.IntN(1<<30), i%2 == 0)
		case 3:
			fmt.Fprintf(&b, "ERROR %s: %s: no such file or directory (commit %s)\n", fileName(r), word(r), hexes(r, 40))
		default:
			fmt.Fprintf(&b, "INFO worker-%d %s %s %s done\n", r.IntN(16), word(r), word(r), word(r))
		}
	}
	return b.String()
}

func listing(r *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		switch r.IntN(3) {
		case 0:
			fmt.Fprintf(&b, "ok  \texample.com/app/%s/%s\t%d.%03ds\n", word(r), word(r), r.IntN(20), r.IntN(1000))
		case 1:
			fmt.Fprintf(&b, "-rw-r--r-- 1 dev dev %7d Nov %2d 12:%02d %s\n", r.IntN(1<<20), 1+r.IntN(30), r.IntN(60), fileName(r))
		default:
			fmt.Fprintf(&b, "%s:%d:\t%s.%s(%s)\n", fileName(r), r.IntN(900), word(r), identifier(r), word(r))
		}
	}
	return b.String()
}

func lockFile(r *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "    \"node_modules/%s-%s\": {\n      \"version\": \"%d.%d.%d\",\n      \"integrity\": \"sha512-%s==\",\n      \"license\": \"MIT\"\n    },\n",
			word(r), word(r), r.IntN(20), r.IntN(20), r.IntN(20), base64ish(r, 86))
	}
	return b.String()
}

func base64ish(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[r.IntN(64)]
	}
	return string(b)
}

func command(r *rand.Rand) string {
	switch r.IntN(4) {
	case 0:
		return "go test ./" + word(r) + "/... -run Test" + identifier(r)
	case 1:
		return "grep -rn \"" + identifier(r) + "\" " + word(r) + "/ | head -" + fmt.Sprint(5+r.IntN(90))
	case 2:
		return "sed -n '" + fmt.Sprint(r.IntN(900)) + ",+40p' " + fileName(r)
	}
	return "git log --oneline -n " + fmt.Sprint(5+r.IntN(20)) + " -- " + fileName(r)
}
