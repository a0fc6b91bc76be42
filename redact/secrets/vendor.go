package secrets

import (
	"bytes"
	"strings"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// vendorPrefixes begin tokens of known makers.
var vendorPrefixes = []string{
	"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
	"glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-", "glffct-",
	"sk-", "pplx-", "xai-", "gsk_", "hf_", "r8_", "nvapi-", "fw_", "tgp_v1_",
	"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xoxc-", "xoxd-", "xapp-",
	"sk_live_", "sk_test_", "rk_live_", "rk_test_", "pk_live_", "whsec_", "sk_prod_", "rk_prod_",
	"npm_", "pypi-AgE", "rubygems_", "cio", "dckr_pat_", "dckr_oat_", "AIza", "ya29.", "GOCSPX-", "1//0",
	"AKIA", "ASIA", "ABIA", "ACCA", "LTAI", "doo_v1_", "dop_v1_", "dor_v1_", "dapi", "dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit.",
	"hvs.", "hvb.", "hvr.", "s.", "ATATT3", "ATCTT3", "ATBB", "ntn_", "secret_", "lin_api_", "lin_oauth_", "figd_", "figdr_", "figo_", "PMAK-", "pul-",
	"SG.", "key-", "sntryu_", "sntrys_", "shpat_", "shpca_", "shppa_", "shpss_", "sbp_", "sq0atp-", "sq0csp-", "sq0idp-", "EAAA", "NRAK-", "NRII-", "NRJS-",
	"glsa_", "glc_", "AGE-SECRET-KEY-1", "SK", "tskey-", "fo1_", "fm1a_", "fm1r_", "fm2_", "eyJ", "pat", "phc_", "phx_", "rdme_", "dt0c01.", "dt0s01.",
	"pscale_tkn_", "pscale_oauth_", "pscale_pw_", "PRIVATE-TOKEN", "v1.0-", "EZAK", "EZTK", "ops_eyJ", "p8e-", "sgp_", "shippo_live_", "shippo_test_",
	"lsv2_pt_", "lsv2_sk_", "e2b_", "tvly-", "jina_", "vercel_", "vcp_", "cfut_", "cfat_", "bkua_", "CFPAT-", "duffel_", "FLWSECK", "xkeysib-", "xsmtpsib-", "API-", "atlasv1.",
	"nfp_", "napi_", "rpa_", "aio_", "csk-", "cal_live_", "squ_", "sqp_", "sqa_", "AKID", "oy2", "ATTA", "cmVmdGtu", "EAA", "fc-",
	"sb_secret_", "pcsk_", "mdb_sa_sk_", "ctx7sk-", "wandb_v1_", "glwt-", "bedrock-api-key-", "SWMTKN-1-", "amzn1.oa2-cs.v1.", "amzn.mws.", "PMAT-", "APP_USR-",
	"pat-na1-", "pat-eu1-", "WPL_AP0.", "WPL_AP1.", "sl.u.", "sl.B", "AQ.Ab", "kubeconfig-u-", "access_token$production$",
}

// plainBodies are prefixes that names of other things begin with as well: so
// many letters and digits, and nothing else, make a token of them.
var plainBodies = map[string]int{"nfp_": 32, "napi_": 40, "rpa_": 40, "aio_": 28, "csk-": 40, "cal_live_": 32, "squ_": 40, "sqp_": 40, "sqa_": 40,
	"AKID": 32, "oy2": 43, "ATTA": 64, "cmVmdGtu": 48, "EAA": 80, "fc-": 32}

// vendorRule finds tokens by their makers' prefixes, looser than gitleaks
// does: a known prefix and at least 16 token characters.
func vendorRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-vendor-token",
		Description: "A token with a vendor's prefix (ghp_, sk-, xoxb-, glpat-, AIza, hvs., …) and at least 16 token characters.",
		Literals:    vendorLiterals(),
		Find:        findVendor,
	}
}

func vendorLiterals() []string {
	seen := map[string]bool{}
	var out []string
	for _, p := range vendorPrefixes {
		switch p {
		case "s.", "PRIVATE-TOKEN", "API-", "pat", "SK", "secret_", "key-", "cio", "1//0", "dapi", "EAAA", "atlasv1.", "eyJ", "v1.0-", "ATBB":
			continue // these have a shape of their own below
		}
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return append(out, ".atlasv1.", "key-", "cio", "dapi", "eaaa", "eyj", "sk", "pat", "secret_", "1//0", "t3blbkfj", "hooks.slack.com/", "discord.com/api/webhooks/",
		"discordapp.com/api/webhooks/", "nral", "-us", "q~", ":aa", ":apa91b", "ingest.", "sentry.io", "webhook.office.com/", "outlook.office.com/webhook/", "hooks.zapier.com/hooks/",
		"open.feishu.cn/open-apis/bot/", "open.larksuite.com/open-apis/bot/", "qyapi.weixin.qq.com/cgi-bin/webhook/", "maker.ifttt.com/trigger/", "events.pagerduty.com/integration/", "hooks.chime.aws/")
}

// vendorByLiteral holds the prefixes by what the automaton looks for.
var vendorByLiteral = func() map[string][]string {
	m := map[string][]string{}
	for _, p := range vendorPrefixes {
		l := strings.ToLower(p)
		m[l] = append(m[l], p)
	}
	return m
}()

// lower appends b in lower case.
func lower(dst, b []byte) []byte {
	for _, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 32
		}
		dst = append(dst, c)
	}
	return dst
}

func tokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

func alnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// Classes of bytes of which a text may hold long runs.
var (
	tokenClass    = redact.ClassOf(tokenByte)
	alnumClass    = redact.ClassOf(alnum)
	hexClass      = redact.ClassOf(hexByte)
	extendedClass = redact.ClassOf(func(b byte) bool {
		return tokenByte(b) || b == '.' || b == '+' || b == '/' || b == '=' || b == '%'
	})
	paddedClass  = redact.ClassOf(func(b byte) bool { return tokenByte(b) || b == '=' })
	azureClass   = redact.ClassOf(func(b byte) bool { return tokenByte(b) || b == '~' || b == '.' })
	webhookClass = redact.ClassOf(func(b byte) bool { return tokenByte(b) || b == '/' || b == '+' })
	queryClass   = redact.ClassOf(func(b byte) bool { return webhookClass[b] || b == '@' || b == '?' || b == '=' || b == '%' })
	dsnClass     = redact.ClassOf(func(b byte) bool { return alnum(b) || b == '.' || b == '-' || b == '/' || b == ':' })
)

// deciding is how much of a long value is looked at to decide about it.
const deciding = 256

// head is what stands at the beginning of a value and decides about it.
func head(v []byte) []byte { return v[:min(len(v), deciding)] }

// run extends end over bytes that ok accepts: for what is short, or ends before
// the next literal.
func run(text []byte, end int, ok func(byte) bool) int {
	for end < len(text) && ok(text[end]) {
		end++
	}
	return end
}

func runBack(text []byte, start, most int, ok func(byte) bool) int {
	for n := 0; start > 0 && n < most && ok(text[start-1]); n++ {
		start--
	}
	return start
}

func hexByte(c byte) bool { return shape.Hex([]byte{c}) }

func findVendor(c *redact.Candidate) {
	text, start, end := c.Text(), c.Start(), c.End()
	lit := text[start:end]
	var low [32]byte
	known := vendorByLiteral[string(lower(low[:0], lit))]
	if known == nil { // a literal that is no beginning
		switch string(lower(low[:0], lit)) {
		case "hooks.slack.com/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/":
			findWebhook(c, webhookClass)
		case "webhook.office.com/", "outlook.office.com/webhook/", "hooks.zapier.com/hooks/", "open.feishu.cn/open-apis/bot/", "open.larksuite.com/open-apis/bot/",
			"qyapi.weixin.qq.com/cgi-bin/webhook/", "maker.ifttt.com/trigger/", "events.pagerduty.com/integration/", "hooks.chime.aws/":
			findWebhook(c, queryClass)
		case "ingest.", "sentry.io":
			findDSN(c)
		default:
			findInner(c)
		}
		return
	}
	// Behind other characters of tokens only what nothing else begins with.
	// Dashes and underscores in front may be those of a comment or of emphasis.
	alone := runBack(text, start, 4, func(b byte) bool { return b == '-' || b == '_' })
	within := start > 0 && tokenByte(text[start-1]) && alone > 0 && tokenByte(text[alone-1])
	if within && (c.Edge(start) || !unmistakable(text, start, end)) {
		return
	}
	if start > 0 && (text[start-1] == '+' || text[start-1] == '/') && insideBlob(text, start, end) {
		return
	}
	prefix := ""
	for _, p := range known {
		if string(lit) == p {
			prefix = p
		}
	}
	if prefix == "" {
		return
	}
	e := c.Run(end, tokenClass)
	for n := alone; n < start && e > end && !alnum(text[e-1]); n++ {
		e--
	}
	if least := plainBodies[prefix]; least > 0 {
		if k := c.Run(end, alnumClass); k == e && k-end >= least && shape.RandomLooking(head(text[end:k])) {
			c.Emit(start, e)
		}
		return
	}
	switch prefix {
	case "SK": // Twilio
		if e-end == 32 && shape.Hex(text[end:e]) {
			c.Emit(start, e)
		}
		return
	case "cio": // crates.io
		if e-end == 32 && shape.RandomLooking(text[end:e]) && bytes.IndexByte(text[end:e], '_') < 0 {
			c.Emit(start, e)
		}
		return
	case "dapi":
		if h := c.Run(end, hexClass); h-end >= 32 {
			c.Emit(start, e)
		}
		return
	case "pat": // Airtable
		if e-end == 14 && e < len(text) && text[e] == '.' {
			if h := c.Run(e+1, hexClass); h-e-1 >= 32 {
				c.Emit(start, h)
			}
		}
		return
	case "key-": // Mailgun
		if h := c.Run(end, hexClass); h-end >= 32 && h == e {
			c.Emit(start, e)
		}
		return
	case "secret_": // Notion
		if e-end >= 40 && shape.RandomLooking(head(text[end:e])) {
			c.Emit(start, e)
		}
		return
	case "EAAA": // Square, Facebook
		if e-end >= 40 && shape.RandomLooking(head(text[end:e])) {
			c.Emit(start, e)
		}
		return
	case "1//0": // Google refresh tokens
		if e-end >= 32 {
			c.Emit(start, e)
		}
		return
	case "eyJ":
		findJWT(c)
		return
	case "AKIA", "ASIA", "ABIA", "ACCA":
		if k := c.Run(end, alnumClass); k == e && k-end == 16 && !bytes.HasSuffix(text[end:k], []byte("EXAMPLE")) && upperDigits(text[end:k]) {
			c.Emit(start, k)
		}
		return
	case "AIza":
		if e-end >= 30 {
			c.Emit(start, e)
		}
		return
	case "access_token$production$", "kubeconfig-u-": // two parts
		if k := e + 1; e-end >= 8 && k < len(text) && (text[e] == '$' || text[e] == ':') {
			if e = c.Run(k, alnumClass); e-k >= 32 {
				c.Emit(start, e)
			}
		}
		return
	case "sl.u.", "sl.B":
		if e-end < 100 {
			return
		}
	case "SG.":
		if e-end >= 16 && e < len(text) && text[e] == '.' {
			c.Emit(start, c.Run(e+1, tokenClass))
		}
		return
	case "ATATT3", "ATCTT3":
		e = c.Run(end, paddedClass)
	case "bedrock-api-key-", "WPL_AP0.", "WPL_AP1.", "hvs.", "hvb.", "hvr.", "ya29.", "dt0c01.", "dt0s01.", "glpat-", "glrt-", "gldt-", "dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "tgp_v1_",
		"ATBB", "pscale_tkn_", "pscale_oauth_", "pscale_pw_", "tskey-", "xoxe.", "sntrys_", "fm1a_", "fm1r_", "fm2_", "fo1_", "glc_", "ops_eyJ", "sq0csp-", "xoxd-":
		e = c.Run(end, extendedClass)
		for n := 0; n < deciding && e > end && text[e-1] == '.'; n++ {
			e--
		}
	}
	if bytes.HasPrefix(text[e:], []byte("@openssh.com")) || bytes.HasPrefix(text[e:], []byte("%40openssh.com")) {
		return // the name of a key's algorithm: sk-ecdsa-sha2-nistp256@openssh.com
	}
	body := head(text[end:e])
	if !within && len(body) >= 8 && len(body) < 16 && cutOff(text, e) && len(prefix) >= 3 && !alnum(prefix[len(prefix)-1]) && tokenBody(body) && !shape.Hex(body) {
		// The rest of the token has been cut off, here or before we saw it.
		c.Emit(start, e)
		return
	}
	if within && (len(body) < 20 || !shape.RandomLooking(body)) {
		return
	}
	if len(body) < 16 || !tokenBody(body) && !(len(prefix) >= 4 && len(body) >= 20 && mixedLetters(body)) {
		return
	}
	c.Skip(e)
	for n := 0; n < deciding && e > end && text[e-1] == '-'; n++ { // a dash of the sentence
		e--
	}
	c.Emit(start, e)
}

// longPrefixes are those that hardly stand in anything but a token.
var longPrefixes = func() map[string]bool {
	m := set("sk-ant-", "sk-proj-", "sk-or-v1-", "sk-svcacct-", "sk-admin-", "npm_")
	for _, p := range vendorPrefixes {
		if len(p) >= 5 && (p[len(p)-1] == '_' || p[len(p)-1] == '-') {
			m[p] = true
		}
	}
	for _, p := range [...]string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "sbp_", "phc_", "phx_", "glc_", "pul-", "ATATT3", "ATCTT3"} {
		m[p] = true
	}
	delete(m, "secret_")
	delete(m, "vercel_")
	return m
}()

// unmistakable reports whether the prefix at [start,end) is that of a token
// also where it stands behind other characters of tokens. In the middle of a
// long run of them it may be chance.
func unmistakable(text []byte, start, end int) bool {
	if !longPrefixes[string(text[start:end])] {
		if string(text[start:end]) != "sk-" {
			return false
		}
		i := start + len("sk-")
		for n := 0; i < len(text) && n < 9 && text[i] != '-'; n++ {
			i++
		}
		if i >= len(text) || !longPrefixes[string(text[start:i+1])] && !bytes.HasPrefix(text[start:], []byte("sk-or-v1-")) {
			return false
		}
	}
	return start-runBack(text, start, 64, tokenByte) < 64
}

// insideBlob reports whether a literal stands in the middle of base64 data,
// which spells anything sooner or later.
func insideBlob(text []byte, start, end int) bool {
	in := func(b byte) bool { return alnum(b) || b == '+' || b == '/' }
	a := runBack(text, start, 200, in)
	if start-a >= 100 {
		return true
	}
	b := end
	for b < len(text) && b-a < 200 && in(text[b]) {
		b++
	}
	return b-a >= 120
}

func upperDigits(b []byte) bool {
	for _, c := range b {
		if !('A' <= c && c <= 'Z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return true
}

// cutOff: the text ends, or an ellipsis says that it goes on.
func cutOff(text []byte, i int) bool {
	rest := text[i:]
	return len(rest) == 0 || bytes.HasPrefix(rest, []byte("…")) || bytes.HasPrefix(rest, []byte("..."))
}

// tokenBody tells a token's characters from words and masks: words have no
// digits and one case.
func tokenBody(b []byte) bool {
	digits := 0
	var lo, up bool
	first := b[0]
	same := true
	for _, c := range b {
		same = same && (c == first || c == 'x' || c == 'X' || c == '*')
		switch {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c && c <= 'z':
			lo = true
		case 'A' <= c && c <= 'Z':
			up = true
		}
	}
	if same || shape.Placeholder(b) {
		return false
	}
	if digits == 0 {
		return lo && up && (shape.RandomLooking(b) || shape.Dense(b))
	}
	if digits == 1 && !up && bytes.ContainsAny(b, "-_") {
		return false // sk-learn-2-something
	}
	return true
}

// mixedLetters: a token of long enough a prefix that happens to have no digit.
func mixedLetters(b []byte) bool {
	n := 0
	for i := 1; i < len(b); i++ {
		if b[i]&0x20 != b[i-1]&0x20 && alnum(b[i]) && alnum(b[i-1]) {
			n++
		}
	}
	return n*10 >= 3*len(b) && !shape.Placeholder(b)
}

// findJWT takes three base64url segments, of which the first is a JSON object.
func findJWT(c *redact.Candidate) {
	text, start := c.Text(), c.Start()
	a := c.Run(start, tokenClass)
	if a-start < 12 || a >= len(text) || text[a] != '.' {
		return
	}
	b := c.Run(a+1, tokenClass)
	if b-a-1 < 8 && !(b-a-1 == 0) {
		return
	}
	e := b
	for n := 0; n < 3 && e < len(text) && text[e] == '.'; n++ { // JWE has five segments
		x := c.Run(e+1, paddedClass)
		if x == e+1 {
			break
		}
		e = x
	}
	if b-a-1 == 0 && e-start < 40 {
		return
	}
	if e == b && (b-a < 20 || !shape.RandomLooking(head(text[a+1:b]))) {
		return
	}
	c.Emit(start, e)
}

// findWebhook takes the URLs of incoming webhooks whole: who has one may write.
func findWebhook(c *redact.Candidate, class *redact.Class) {
	text, start, end := c.Text(), c.Start(), c.End()
	e := c.Run(end, class)
	if e-end < 24 && !(e-end >= 14 && text[start] == 'h') {
		return
	}
	if text[start] == 'w' { // tenant.webhook.office.com
		start = runBack(text, start, 64, func(b byte) bool { return alnum(b) || b == '.' || b == '-' })
	}
	for _, s := range [...]string{"https://", "http://"} {
		if start >= len(s) && string(text[start-len(s):start]) == s {
			start -= len(s)
			break
		}
	}
	for n := 0; n < deciding && e > end && text[e-1] == '/'; n++ {
		e--
	}
	c.Emit(start, e)
}

// findDSN takes a Sentry DSN whole: https://key@host.ingest.sentry.io/project.
func findDSN(c *redact.Candidate) {
	text := c.Text()
	s := runBack(text, c.Start(), 200, func(b byte) bool { return alnum(b) || b == '.' || b == '-' })
	if s == 0 || text[s-1] != '@' {
		return
	}
	k := runBack(text, s-1, 80, func(b byte) bool { return hexByte(b) || b == ':' })
	if s-1-k < 32 {
		return
	}
	if k >= 3 && string(text[k-3:k]) == "://" {
		k = runBack(text, k-3, 8, alnum)
	}
	e := c.Run(c.End(), dsnClass)
	for n := 0; n < deciding && e > c.End() && (text[e-1] == '.' || text[e-1] == ':'); n++ {
		e--
	}
	c.Emit(k, e)
}

// findInner finds tokens that are known by what stands inside or at their end.
func findInner(c *redact.Candidate) {
	text, start, end := c.Text(), c.Start(), c.End()
	switch string(text[start:end]) {
	case "T3BlbkFJ": // OpenAI
		s := runBack(text, start, 200, tokenByte)
		e := c.Run(end, tokenClass)
		if start-s >= 16 && e-end >= 16 {
			c.Emit(s, e)
		}
	case "NRAL": // New Relic licence keys
		s := runBack(text, start, 60, alnum)
		if start-s >= 30 && (end == len(text) || !alnum(text[end])) && shape.Hex(text[s:start]) {
			c.Emit(s, end)
		}
	case "-us": // Mailchimp
		s := runBack(text, start, 60, hexByte)
		e := end
		for e < len(text) && e-end < 3 && '0' <= text[e] && text[e] <= '9' {
			e++
		}
		if start-s == 32 && e > end && e-end <= 2 && (e == len(text) || !alnum(text[e])) && (s == 0 || !alnum(text[s-1])) {
			c.Emit(s, e)
		}
	case "Q~": // Azure client secrets
		s := runBack(text, start, 8, func(b byte) bool { return azureClass[b] })
		e := c.Run(end, azureClass)
		if start-s == 4 && '0' <= text[start-1] && text[start-1] <= '9' && e-end >= 30 && e-end <= 40 {
			c.Emit(s, e)
		}
	case ":AA": // Telegram bots
		s := runBack(text, start, 12, func(b byte) bool { return '0' <= b && b <= '9' })
		e := c.Run(end, tokenClass)
		if start-s >= 8 && e-end >= 30 && e-end <= 36 {
			c.Emit(s, e)
		}
	case ":APA91b": // Firebase
		s := runBack(text, start, 64, tokenByte)
		if e := c.Run(end, tokenClass); start-s >= 8 && e-end >= 100 {
			c.Emit(s, e)
		}
	case ".atlasv1.": // Terraform Cloud
		s := runBack(text, start, 20, alnum)
		e := c.Run(end, paddedClass)
		if start-s >= 12 && e-end >= 30 {
			c.Emit(s, e)
		}
	}
}
