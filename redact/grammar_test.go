package redact_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// A grammar of secrets, of the places in which they stand, and of the ways in
// which these are encoded. It is drawn from with several seeds, so that rules
// are held to a kind's grammar and not to a file of examples.

type grammar struct{ *rand.Rand }

func newGrammar(seed uint64) grammar { return grammar{rand.New(rand.NewPCG(seed, 0x6772616d))} }

const (
	gLower  = "abcdefghijklmnopqrstuvwxyz"
	gUpper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	gDigits = "0123456789"
	gAlnum  = gLower + gUpper + gDigits
	gHex    = gDigits + "abcdef"
	gToken  = gAlnum + "_-"
	gBech32 = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"
)

func (g grammar) of(set string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = set[g.IntN(len(set))]
	}
	return string(b)
}

func (g grammar) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func pick[T any](g grammar, s ...T) T { return s[g.IntN(len(s))] }

var patternPart = regexp.MustCompile(`\{([a-zA-Z])(\d+)(?:-(\d+))?\}`)

// pattern fills {a36} and the like: a letters and digits, h hex, l lower, u
// upper case and digits, d digits, t token characters, b base64 of n bytes,
// q Bech32.
func (g grammar) pattern(p string) string {
	return patternPart.ReplaceAllStringFunc(p, func(m string) string {
		x := patternPart.FindStringSubmatch(m)
		n, _ := strconv.Atoi(x[2])
		if x[3] != "" {
			hi, _ := strconv.Atoi(x[3])
			n += g.IntN(hi - n + 1)
		}
		switch x[1] {
		case "a":
			return g.of(gAlnum, n)
		case "h":
			return g.of(gHex, n)
		case "l":
			return g.of(gLower, n)
		case "u":
			return g.of(gUpper+gDigits, n)
		case "d":
			return g.of(gDigits, n)
		case "t":
			return g.of(gToken, n-2) + g.of(gAlnum, 2)
		case "b":
			return base64.StdEncoding.EncodeToString(g.bytes(n))
		case "x":
			return g.of(gHex, n)
		case "q":
			return g.of(gBech32, n)
		}
		panic(m)
	})
}

func (g grammar) syllables(n int) string {
	var b strings.Builder
	for i := 0; i < n; i++ {
		b.WriteString(g.of("bdfgklmnprstvwz", 1) + g.of("aeiou", 1))
	}
	return b.String()
}

// secretKind is one kind of secret.
type secretKind struct {
	name  string
	names []string // what it is called where it is assigned, in words: "stripe secret key"
	value func(g grammar) string
	forms []string // texts of its own, with {V}
	anon  bool     // recognisable without a name
	hard  bool
	block bool // several lines
}

func pat(ps ...string) func(grammar) string {
	return func(g grammar) string { return g.pattern(pick(g, ps...)) }
}

func (g grammar) strong() string {
	for {
		n := 12 + g.IntN(9)
		s := g.of(gAlnum, 1) + g.of(gAlnum+gAlnum+"!%^*_+=.-~@", n-2) + g.of(gAlnum, 1)
		if strings.ContainsAny(s, gDigits) && strings.ContainsAny(s, gUpper) && strings.ContainsAny(s, gLower) && strings.ContainsAny(s, "!%^*_+=.-~@") && !strings.Contains(s, "--") {
			return s
		}
	}
}

func (g grammar) weak() string {
	w := g.syllables(2 + g.IntN(2))
	w = strings.ToUpper(w[:1]) + w[1:]
	return w + pick(g, "!", "@", "#", "_", "-", ".") + strconv.Itoa(1950+g.IntN(8000)) + pick(g, "", "!", "?")
}

func (g grammar) luhn(prefix string, n int) string {
	s := prefix + g.of(gDigits, n-1-len(prefix))
	sum := 0
	for i := len(s) - 1; i >= 0; i-- {
		d := int(s[i] - '0')
		if (len(s)-1-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return s + strconv.Itoa((10-sum%10)%10)
}

func (g grammar) grouped(s string) string {
	sep := pick(g, "", " ", "-")
	if sep == "" {
		return s
	}
	var out []string
	if len(s) == 15 || len(s) == 14 {
		out = []string{s[:4], s[4:10], s[10:]}
	} else {
		for i := 0; i < len(s); i += 4 {
			out = append(out, s[i:min(len(s), i+4)])
		}
	}
	return strings.Join(out, sep)
}

func card(prefixes []string, lengths ...int) func(grammar) string {
	return func(g grammar) string { return g.grouped(g.luhn(pick(g, prefixes...), pick(g, lengths...))) }
}

func (g grammar) iban() string {
	c := pick(g, "DE:18", "GB:18", "FR:23", "NL:14", "ES:20", "CH:17", "AT:16", "BE:12", "DK:14", "AE:19", "PL:24", "IT:23", "SE:20", "NO:11", "PT:21")
	n, _ := strconv.Atoi(c[3:])
	body := g.of(gDigits, n)
	switch c[:2] {
	case "GB", "NL":
		body = g.of(gUpper, 4) + g.of(gDigits, n-4)
	case "IT":
		body = g.of(gUpper, 1) + g.of(gDigits, n-1)
	}
	var num strings.Builder
	for _, ch := range body + c[:2] + "00" {
		if ch >= 'A' {
			num.WriteString(strconv.Itoa(int(ch-'A') + 10))
		} else {
			num.WriteRune(ch)
		}
	}
	v, _ := new(big.Int).SetString(num.String(), 10)
	s := c[:2] + fmt.Sprintf("%02d", 98-new(big.Int).Mod(v, big.NewInt(97)).Int64()) + body
	if g.IntN(2) == 0 {
		var out []string
		for i := 0; i < len(s); i += 4 {
			out = append(out, s[i:min(len(s), i+4)])
		}
		return strings.Join(out, " ")
	}
	return s
}

func (g grammar) cnID() string {
	s := pick(g, "110101", "310104", "440305", "330106", "510104") + fmt.Sprintf("%d%02d%02d", 1950+g.IntN(55), 1+g.IntN(12), 1+g.IntN(28)) + g.of(gDigits, 3)
	sum := 0
	for i, w := range []int{7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2} {
		sum += int(s[i]-'0') * w
	}
	return s + string("10X98765432"[sum%11])
}

func (g grammar) wif() string {
	b := append(append([]byte{0x80}, g.bytes(32)...), 1)
	h := sha256.Sum256(b)
	h = sha256.Sum256(h[:])
	n := new(big.Int).SetBytes(append(b, h[:4]...))
	const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	var out []byte
	for m := new(big.Int); n.Sign() > 0; {
		n.DivMod(n, big.NewInt(58), m)
		out = append([]byte{digits[m.Int64()]}, out...)
	}
	return string(out)
}

func (g grammar) jwt() string {
	enc := base64.RawURLEncoding.EncodeToString
	h := pick(g, `{"alg":"HS256","typ":"JWT"}`, `{"alg":"RS256","typ":"JWT","kid":"`+g.of(gHex, 8)+`"}`, `{"typ":"JWT","alg":"ES256"}`)
	p := fmt.Sprintf(`{"sub":"%s","iat":%d,"exp":%d}`, g.uuid(), 1700000000+g.IntN(1e8), 1800000000+g.IntN(1e8))
	return enc([]byte(h)) + "." + enc([]byte(p)) + "." + enc(g.bytes(pick(g, 32, 64, 256)))
}

func (g grammar) uuid() string {
	h := g.of(gHex, 32)
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
}

func (g grammar) pem(label string) string {
	body := base64.StdEncoding.EncodeToString(append([]byte{0x30, 0x82, 1, 0x50}, g.bytes(80+g.IntN(400))...))
	var lines []string
	for i := 0; i < len(body); i += 64 {
		lines = append(lines, body[i:min(len(body), i+64)])
	}
	return strings.Join(lines, "\n")
}

func pemOf(label string) func(grammar) string {
	return func(g grammar) string { return g.pem(label) }
}

func pemForms(label string) []string {
	begin, end := "-----BEGIN "+label+"-----\n", "\n-----END "+label+"-----"
	return []string{begin + "{V}" + end, "here:\n" + begin + "{V}" + end + "\nthat was it", "cat > k.pem <<'EOT'\n" + begin + "{V}" + end + "\nEOT", "```\n" + begin + "{V}" + end + "\n```"}
}

func (g grammar) email() string {
	local := pick(g, g.syllables(3), g.syllables(2)+"."+g.syllables(2), g.syllables(2)+"+"+g.syllables(2), g.of(gLower, 1)+"_"+g.syllables(3)+strconv.Itoa(g.IntN(999)))
	return local + "@" + pick(g, "mail."+g.syllables(3)+".example", g.syllables(4)+"-fictive.com", g.syllables(3)+".co.uk", g.syllables(3)+".test", g.syllables(4)+".de")
}

func (g grammar) phone() string {
	return pick(g, "+1 "+g.area()+" 555 "+g.of(gDigits, 4), "+1"+g.area()+"555"+g.of(gDigits, 4), "+1 ("+g.area()+") 555-"+g.of(gDigits, 4), "("+g.area()+") 555-"+g.of(gDigits, 4), g.area()+"-555-"+g.of(gDigits, 4),
		"+44 7700 900"+g.of(gDigits, 3), "+49 30 23125 "+g.of(gDigits, 3), "+49 176 040690"+g.of(gDigits, 2), "+33 1 99 00 "+g.of(gDigits, 2)+" "+g.of(gDigits, 2), "+86 139 0000 "+g.of(gDigits, 4),
		"+81 90-0000-"+g.of(gDigits, 4), "090-0000-"+g.of(gDigits, 4), "+91 98765 "+g.of(gDigits, 5), "+34 612 34 "+g.of(gDigits, 2)+" "+g.of(gDigits, 2))
}

func (g grammar) area() string { return g.of("23456789", 1) + g.of("1234567", 2) }

func (g grammar) ssn() string {
	return fmt.Sprintf("%03d-%02d-%04d", 1+g.IntN(665), 1+g.IntN(99), 1+g.IntN(9999))
}

// vendored kinds are known by their own look, and are also assigned to names.
func vendored(name, names string, p ...string) secretKind {
	return secretKind{name: name, names: strings.Split(names, "|"), value: pat(p...), anon: true}
}

// named kinds say nothing by themselves.
func named(name, names string, p ...string) secretKind {
	return secretKind{name: name, names: strings.Split(names, "|"), value: pat(p...)}
}

func connKind(name string, forms ...string) secretKind {
	return secretKind{name: name, value: func(g grammar) string { return g.pattern("{a11-22}{d1}{l1}") }, forms: forms}
}

func commandKind(name string, forms ...string) secretKind {
	var all []string
	for _, f := range forms {
		all = append(all, f, "$ "+f, "+ "+f, "set -e; "+f+" || exit 1", "run: |\n  "+f+"\n  echo done", "sudo "+f, "RUN "+f, "time "+f)
	}
	return secretKind{name: name, value: grammar.strong, forms: all}
}

var grammarKinds = []secretKind{
	vendored("age_secret", "age key|sops age key", "AGE-SECRET-KEY-1{q58}"),
	vendored("airtable", "airtable api key", "pat{a14}.{h64}"),
	vendored("anthropic_api", "anthropic api key|claude api key", "sk-ant-api03-{t93}AA"),
	vendored("anthropic_oauth", "anthropic auth token", "sk-ant-oat01-{t93}AA"),
	vendored("atlassian", "jira api token|confluence token", "ATATT3xFfGF0{t170}={u8}"),
	vendored("aws_access_key_id", "aws access key id", "AKIA{u16}", "ASIA{u16}"),
	named("aws_secret_key", "aws secret access key", "{a40}"),
	vendored("azure_client_secret", "azure client secret|arm client secret", "{a3}8Q~{a34}"),
	named("azure_openai", "azure openai api key", "{h32}"),
	named("azure_storage_key", "azure storage key|storage account key", "{b64}"),
	named("cloudflare_token", "cloudflare api token|cf api token", "{a40}"),
	named("cohere_like", "cohere api key", "{a40}"),
	vendored("crates_io", "cargo registry token", "cio{a32}"),
	vendored("databricks", "databricks token", "dapi{h32}"),
	named("datadog_api", "datadog api key|dd api key", "{h32}"),
	named("datadog_app", "dd app key", "{h40}"),
	vendored("deepseek", "deepseek api key", "sk-{h32}"),
	vendored("digitalocean", "digitalocean access token", "dop_v1_{h64}", "doo_v1_{h64}"),
	{name: "discord_bot", names: []string{"discord token", "discord bot token"}, value: func(g grammar) string {
		return base64.RawStdEncoding.EncodeToString([]byte(g.of("123456789", 1)+g.of(gDigits, 17))) + "." + g.of(gAlnum, 6) + "." + g.of(gToken, 36) + g.of(gAlnum, 2)
	}},
	vendored("discord_webhook", "discord webhook url", "https://discord.com/api/webhooks/{d19}/{t68}"),
	vendored("dockerhub_pat", "docker password|dockerhub token", "dckr_pat_{t27}"),
	vendored("doppler", "doppler token", "dp.pt.{a43}"),
	vendored("figma", "figma token", "figd_{t40}"),
	vendored("gcp_access_token", "google access token", "ya29.a0{t140}"),
	vendored("gcp_api_key", "google api key|maps key|gemini api key", "AIzaSy{t33}"),
	vendored("gcp_oauth_secret", "google client secret", "GOCSPX-{t28}"),
	vendored("github", "github token|gh token", "ghp_{a36}", "gho_{a36}", "ghs_{a36}", "ghu_{a36}", "ghr_{a36}", "github_pat_{a22}_{a59}"),
	vendored("gitlab", "gitlab token|ci job token", "glpat-{t20}", "glrt-{t20}", "glpat-{t27}.0r0{l2}{l6}", "glrt-t1_{t27}.0r1{l8}"),
	vendored("grafana_sa", "grafana token", "glsa_{a32}_{h8}"),
	vendored("groq", "groq api key", "gsk_{a52}"),
	vendored("huggingface", "hf token|hugging face hub token", "hf_{a34}"),
	vendored("linear", "linear api key", "lin_api_{a40}"),
	vendored("mailchimp", "mailchimp api key", "{h32}-us{d1}", "{h32}-us1{d1}"),
	vendored("mailgun", "mailgun api key", "key-{h32}"),
	named("mistral_like", "mistral api key", "{a32}"),
	vendored("newrelic_license", "new relic license key", "{h36}NRAL"),
	vendored("newrelic_user", "new relic api key", "NRAK-{u27}"),
	vendored("notion", "notion token", "ntn_{d11}{a35}", "secret_{a43}"),
	vendored("npm", "npm token|node auth token", "npm_{a36}"),
	vendored("openai", "openai api key", "sk-{a20}T3BlbkFJ{a20}", "sk-proj-{t74}T3BlbkFJ{t74}", "sk-svcacct-{t74}T3BlbkFJ{t74}"),
	vendored("openrouter", "openrouter api key", "sk-or-v1-{h64}"),
	vendored("perplexity", "perplexity api key", "pplx-{a48}"),
	vendored("postman", "postman api key", "PMAK-{h24}-{h34}"),
	vendored("pulumi", "pulumi access token", "pul-{h40}"),
	vendored("pypi", "pypi token|twine password", "pypi-AgEIcHlwaS5vcmc{t150}"),
	vendored("replicate", "replicate api token", "r8_{a37}"),
	vendored("rubygems", "gem host api key", "rubygems_{h48}"),
	vendored("sendgrid", "sendgrid api key", "SG.{t22}.{t43}"),
	vendored("sentry_dsn", "sentry dsn", "https://{h32}@o{d7}.ingest.us.sentry.io/{d16}", "https://{h32}@o{d6}.ingest.sentry.io/{d7}"),
	vendored("sentry_token", "sentry auth token", "sntryu_{h64}"),
	vendored("shopify", "shopify access token", "shpat_{h32}", "shpca_{h32}", "shpss_{h32}"),
	vendored("slack", "slack bot token|slack token", "xoxb-{d12}-{d13}-{a24}", "xoxp-{d12}-{d12}-{d13}-{h32}", "xapp-1-A{u10}-{d13}-{h64}"),
	vendored("slack_webhook", "slack webhook url", "https://hooks.slack.com/services/T{u10}/B{u10}/{a24}"),
	vendored("square", "square access token", "sq0atp-{t22}", "EAAA{t60}"),
	vendored("stripe", "stripe secret key|stripe restricted key|stripe webhook secret", "sk_live_{a24}", "rk_live_{a99}", "sk_live_51{a97}", "whsec_{a32}", "sk_test_{a24}"),
	vendored("supabase", "supabase access token", "sbp_{h40}"),
	vendored("telegram_bot", "telegram bot token", "{d10}:AA{t33}"),
	vendored("terraform_cloud", "tfe token", "{a14}.atlasv1.{t67}"),
	vendored("twilio_api_key", "twilio api key", "SK{h32}"),
	named("twilio_auth", "twilio auth token", "{h32}"),
	vendored("vault_hvs", "vault token", "hvs.{t95}"),
	named("vercel_token", "vercel token", "{a24}"),
	vendored("xai", "xai api key", "xai-{a80}"),
	named("zhipu", "zhipuai api key|glm api key", "{h32}.{a16}"),
	named("generic_api_key", "api key|service api key|partner api token|acme internal access token", "{a32-40}"),
	named("generic_b64_secret", "jwt secret|secret key|master key|encryption key", "{b32}"),
	named("generic_hex_secret", "signing key|webhook secret|session secret|app secret|cookie secret", "{h64}", "{h40}", "{h32}"),
	named("eth_private_key", "eth private key|deployer private key", "0x{h64}"),
	{name: "btc_wif", names: []string{"btc wif", "wallet private key"}, value: grammar.wif, anon: true},
	{name: "password_strong", names: []string{"db password", "smtp pass", "user pwd", "root password", "admin password", "redis password", "keystore passphrase", "password", "ldap bind password"}, value: grammar.strong},
	{name: "password_weak", names: []string{"db password", "password", "mysql root password", "passwd", "admin pass", "ssh passphrase"}, value: grammar.weak},
	{name: "jwt", names: []string{"id token", "access token", "auth token"}, value: grammar.jwt, anon: true},
	{name: "bearer_opaque", value: pat("{t36-70}"), forms: []string{"Authorization: Bearer {V}", "> Authorization: Bearer {V}\n> Accept: */*", "curl -H 'Authorization: Bearer {V}' https://api.example.com", `curl -H "authorization: bearer {V}" -d @x https://api.example.com`,
		`requests.get(url, headers={"Authorization": "Bearer {V}"})`, "headers: { Authorization: `Bearer {V}` }", `proxy_set_header Authorization "Bearer {V}";`, "http GET api.example.com Authorization:'Bearer {V}'", `req.Header.Set("Authorization", "Bearer {V}")`, `-H "Authorization: token {V}"`,
		"wget --header='Authorization: Bearer {V}' https://api.example.com/x", `.header("Authorization", "Bearer {V}")`, "Invoke-RestMethod -Headers @{ Authorization = 'Bearer {V}' }", "grpcurl -H 'authorization: Bearer {V}' host:443 list", `{"authorization": "Bearer {V}"}`}},
	{name: "basic_auth", value: func(g grammar) string {
		return base64.StdEncoding.EncodeToString([]byte(g.syllables(2) + ":" + g.strong()))
	}, forms: []string{"Authorization: Basic {V}", "> authorization: basic {V}", "curl -H 'Proxy-Authorization: Basic {V}' https://x.example.com", `{"headers": {"Authorization": "Basic {V}"}}`, `req.Header.Add("Authorization", "Basic {V}")`}},
	{name: "cookie", value: pat("{a32-40}", "s:{t32}.{a43}"), forms: []string{"Cookie: theme=dark; session={V}; lang=en", "Set-Cookie: PHPSESSID={V}; Path=/; HttpOnly", "cookie: _ga=GA1.2.5; auth_token={V}", "curl -H 'Cookie: connect.sid={V}; theme=light' https://api.example.com/x",
		"curl -b 'sessionid={V}' https://x.example.com", `document.cookie = "session={V}; path=/"`, "< set-cookie: JSESSIONID={V}; Secure; HttpOnly", `curl --cookie "session={V}" https://x.example.com`, "Cookie: __Host-session={V}", "Set-Cookie: remember_token={V}; Expires=Wed, 21 Oct 2026 07:28:00 GMT"}},
	{name: "header_api_key", value: pat("{a32-40}"), forms: []string{"X-Api-Key: {V}", "> x-auth-token: {V}", "apikey: {V}", "PRIVATE-TOKEN: {V}", "curl -H 'X-Api-Key: {V}' https://x.example.com", "> X-Session-Id: {V}", "x-amz-security-token: {V}", "DD-API-KEY: {V}", "Ocp-Apim-Subscription-Key: {V}", `headers["X-Auth-Token"] = "{V}"`, "X-Vault-Token: {V}", "X-GitHub-Token: {V}", "Api-Key: {V}"}},
	connKind("conn_url", "DATABASE_URL=postgres://{w}:{V}@db.{w}.io:5432/x?sslmode=require", "mongodb+srv://{w}:{V}@cluster0.{w}.com/db?retryWrites=true", "redis://:{V}@cache.{w}.com:6379/0", "conn = connect(\"mysql://{w}:{V}@db.{w}.com:3306/x\")", "amqps://{w}:{V}@mq.{w}.test/x",
		"  url: \"smtps://{w}:{V}@mail.{w}.net:465\"", "ERROR cannot connect to postgresql://{w}:{V}@{w}:5432/x after 3 tries", "git clone https://{w}:{V}@git.{w}.com/a/b.git", "<clickhouse://{w}:{V}@ch.{w}.dev:9000/x>", "sqlalchemy.url = mysql+pymysql://{w}:{V}@10.0.0.3/x", "ftp://{w}:{V}@ftp.{w}.org/a", "HTTPS_PROXY=http://{w}:{V}@proxy.{w}.com:3128",
		"接続先は postgres://{w}:{V}@db.{w}.org:5432/x です", "pip install --index-url https://{w}:{V}@pypi.{w}.io/simple x", "kafka+ssl://{w}:{V}@k.{w}.io:9092", "elasticsearch: http://elastic:{V}@es:9200", "postgres://{w}:{V}@localhost/x", "git remote add o https://oauth2:{V}@gitlab.{w}.com/x.git", "url = https://x-access-token:{V}@github.com/a/b"),
	connKind("conn_jdbc", "jdbc:postgresql://db.{w}.com:5432/x?user=u&password={V}&ssl=true", "jdbc:sqlserver://db.{w}.net:1433;databaseName=x;user=u;password={V};encrypt=true", "jdbc:mysql://h/x?user=u&password={V}", "jdbc:oracle:thin:u/{V}@//db.{w}.com:1521/x", "spring.datasource.url=jdbc:mysql://h:3306/x?password={V}&user=u"),
	connKind("conn_adonet", "Server=tcp:db.{w}.org,1433;Initial Catalog=x;User ID=u;Password={V};Encrypt=True;", "Data Source=h;User Id=u;Pwd={V};", "\"DefaultConnection\": \"Server=h;Database=x;User Id=sa;Password={V};\"", "Driver={ODBC Driver 17};Server=h;UID=sa;PWD={V}"),
	connKind("conn_libpq", "host=db.{w}.net port=5432 dbname=x user=u password={V}", "psql \"host=h dbname=x user=u password={V} sslmode=require\"", "dsn = 'user=u password={V} host=h'"),
	{name: "conn_azure", value: pat("{b64}"), forms: []string{"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={V};EndpointSuffix=core.windows.net", "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={V}", "AccountEndpoint=https://x.documents.azure.com:443/;AccountKey={V};"}},
	{name: "azure_sas", value: func(g grammar) string { return url.QueryEscape(base64.StdEncoding.EncodeToString(g.bytes(32))) }, forms: []string{"https://x.blob.core.windows.net/c/f?sv=2022-11-02&st=2026-01-01&sr=b&sig={V}", "?sv=2022-11-02&ss=b&srt=sco&sp=r&sig={V}&se=2027"}},
	{name: "url_token", value: pat("{a40}"), forms: []string{"https://{V}@git.{w}.com/a/b.git", "https://{V}:x-oauth-basic@git.{w}.com/a/b", "clone https://{V}:@git.{w}.com/a"}},
	commandKind("cli_curl_u", "curl -u {w}:{V} https://api.{w}.com/x", "curl -sS --user '{w}:{V}' https://{w}.com/x", "curl -X POST -u \"{w}:{V}\" -d @b.json https://{w}.com", "curl -fsSL --proxy-user {w}:{V} https://{w}.com"),
	commandKind("cli_mysql_p", "mysql -u {w} -p{V} db -e 'select 1'", "mysqldump -h db.{w}.io -u{w} -p'{V}' x > d.sql", "mysqladmin -uroot -p{V} status", "mysql -h h -u root --password={V} x", "mariadb -uroot -p{V} x"),
	commandKind("cli_sshpass", "sshpass -p {V} scp a.txt deploy:/srv/", "sshpass -p '{V}' ssh {w}@{w}.com uptime"),
	commandKind("cli_redis_a", "redis-cli -h cache.{w}.com -a {V} ping", "redis-cli -a '{V}' --no-auth-warning info"),
	commandKind("cli_openssl", "openssl rsa -in k.pem -passin pass:{V} -out o.pem", "keytool -list -keystore ks.jks -storepass {V}", "openssl enc -aes-256-cbc -pass pass:{V} -in a -out b"),
	commandKind("cli_pgpassword", "PGPASSWORD={V} psql -h db.{w}.io -U u x", "PGPASSWORD='{V}' pg_dump x | gzip > x.gz", "MYSQL_PWD={V} mysql x", "env PGPASSWORD={V} psql x"),
	commandKind("cli_flag", "./deploy.sh --user u --password={V} --verbose", "./deploy.sh --password {V} --region eu-1", "acli auth --secret '{V}' --json", "tool login --passwd={V}", "az sql server create --admin-password {V} -n x", "vault login -method=userpass username=u password={V}", "helm install x . --set db.password={V}",
		"kubectl create secret generic x --from-literal=password={V}", "docker run -e POSTGRES_PASSWORD={V} postgres", "java -Dspring.datasource.password={V} -jar x.jar", "ansible-playbook x.yml -e \"ansible_password={V}\"", "aws rds create-db-instance --master-user-password {V}", "gcloud sql users set-password u --password={V}", "mongosh -u u --password {V} db", "gh secret set DB_PASSWORD --body '{V}'", "heroku config:set DB_PASSWORD={V}", "docker service create --env DB_PASS={V} x", "terraform apply -var 'db_password={V}'", "npm config set //r.example.com/:_password {V}"),
	{name: "cli_docker_login", hard: true, value: grammar.strong, forms: commandKind("", "docker login -u {w} -p {V} registry.{w}.io", "echo '{V}' | docker login registry.{w}.io -u x --password-stdin", "docker login --username u --password {V}", "echo {V} | docker login -u u --password-stdin", "podman login -u u -p '{V}' quay.io", "printf '%s' '{V}' | docker login -u u --password-stdin r.io").forms},
	{name: "netrc", value: grammar.strong, forms: []string{"machine api.{w}.io login {w} password {V}", "machine git.{w}.dev\n  login {w}\n  password {V}\n", "default login {w} password {V}"}},
	{name: "npmrc", value: pat("npm_{a36}", "{h8}-{h4}-4{h3}-a{h3}-{h12}"), forms: []string{"//npm.pkg.example.com/:_authToken={V}", "registry=https://r.example.com/\n//r.example.com/:_authToken={V}\nalways-auth=true", "npm config set //r.example.com/:_authToken {V}"}},
	{name: "pgpass", hard: true, value: grammar.strong, forms: []string{"db.{w}.com:5432:{w}:{w}:{V}", "*:*:*:{w}:{V}", "# pg hosts\ndb.{w}.net:5432:{w}:{w}:{V}\n", "localhost:5433:x:{w}:{V}"}},
	{name: "htpasswd", hard: true, value: pat("$apr1${a8}${a22}", "$2y$05${a53}"), forms: []string{"{w}:{V}", "admin:{V}\n{w}:x", "cat .htpasswd\n{w}:{V}"}},
	{name: "db_dump", hard: true, value: pat("$2b$12${a53}", "$argon2id$v=19$m=65536,t=3,p=4${a22}${a43}", "{h32}"), forms: []string{"INSERT INTO users (id, email, password, created_at) VALUES (4735, 'x', '{V}', '2026-09-15 08:15:30+00');", "INSERT INTO \"user\" (id, name, password_hash) VALUES (1,'bob','{V}'),(2,'x','y');", "insert into accounts(login, passwd) values ('bob', '{V}')"}},
	{name: "sql_password", value: grammar.strong, forms: []string{"ALTER USER {w} WITH PASSWORD '{V}';", "CREATE USER '{w}'@'%' IDENTIFIED BY '{V}';", "UPDATE users SET password = '{V}' WHERE id = 3;", "CREATE ROLE {w} LOGIN PASSWORD '{V}';", "SET PASSWORD FOR 'u'@'h' = '{V}';", "GRANT ALL ON x.* TO 'u'@'%' IDENTIFIED BY '{V}';"}},
	{name: "password_chat", hard: true, value: grammar.weak, forms: []string{"login with user admin and password {V}", "密码：{V}", "mot de passe : {V}", "密码是 {V}", "كلمة المرور: {V}", "my password is {V}", "パスワードは {V} です", "pwd: {V}", "Das Passwort lautet {V}", "la contraseña es {V}", "senha: {V}", "пароль: {V}", "the new password is {V}, please change it", "비밀번호는 {V}", "hasło to {V}", "I set the password to {V} for now", "use the password {V} to log in", "password = {V}", "pw: {V}", "passwort: {V}", "Passwort ist {V}.", "user: bob, pass: {V}"}},
	{name: "docker_config", value: func(g grammar) string {
		return base64.StdEncoding.EncodeToString([]byte(g.syllables(2) + ":" + g.strong()))
	}, forms: []string{`{"auths": {"registry.{w}.dev": {"auth": "{V}"}}, "credsStore": ""}`, "{\n  \"auths\": {\n    \"r.io\": {\n      \"auth\": \"{V}\"\n    }\n  }\n}"}},
	{name: "k8s_secret", value: func(g grammar) string { return base64.StdEncoding.EncodeToString([]byte(g.strong())) }, forms: []string{"apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ntype: Opaque\ndata:\n  password: {V}\n", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  username: YWRtaW4=\n  value: {V}\n---\nkind: Pod\n", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"},"data":{"x":"{V}"}}`}},
	{name: "kubeconfig", value: func(g grammar) string {
		return base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----\n" + g.pem("") + "\n-----END EC PRIVATE KEY-----\n"))
	}, forms: []string{"users:\n- name: x\n  user:\n    client-certificate-data: LS0t\n    client-key-data: {V}\n", "    client-key-data: {V}"}},
	{name: "wireguard", value: pat("{b32}"), forms: []string{"[Interface]\nPrivateKey = {V}\nListenPort = 51820\n\n[Peer]\n", "PresharedKey = {V}"}},
	{name: "gcp_service_account", block: true, value: pemOf(""), forms: []string{}},
	{name: "pem_rsa", block: true, value: pemOf(""), forms: pemForms("RSA PRIVATE KEY")},
	{name: "pem_ec", block: true, value: pemOf(""), forms: pemForms("EC PRIVATE KEY")},
	{name: "pem_pkcs8", block: true, value: pemOf(""), forms: pemForms("PRIVATE KEY")},
	{name: "pem_encrypted", block: true, value: pemOf(""), forms: pemForms("ENCRYPTED PRIVATE KEY")},
	{name: "pem_openssh", block: true, value: pemOf(""), forms: pemForms("OPENSSH PRIVATE KEY")},
	{name: "pgp", block: true, value: pemOf(""), forms: pemForms("PGP PRIVATE KEY BLOCK")},
	{name: "email", names: nil, value: grammar.email, anon: true, forms: []string{"Please send the report to {V} before Friday.", "作者张晓岚邮箱{V}已验证", "Co-authored-by: Ann Lee <{V}>", "git config user.email {V}", "Kontakt: Priya ({V})", "to={V} tier=gold", "mailto:{V}?subject=x", "田中 陽菜（{V}）", "✉️ {V} 👍", "author:{V};", "'{V}'", "From: \"X Y\" <{V}>", "user {V} logged in"}},
	{name: "phone", value: grammar.phone, forms: []string{"Call me at {V} after lunch.", "phone: {V}", "电话：{V}，请回电。", "Tel. {V}", "SMS to {V} failed", "phone={V} tier=gold", "mobile: {V}", "Telefon: {V}", "contact {V}", "☎ {V}", "{\"phone_number\": \"{V}\"}", "dial {V} now"}},
	{name: "card", value: card([]string{"4"}, 16, 19, 13), anon: true, forms: []string{"card: {V}", "Charge card {V} failed: insufficient funds", "卡号 {V} 已过期", "カード番号：{V}", "Karte {V} abgelehnt", "Refund to {V} please", "PAN={V} exp=09/29", "card_number={V} tier=gold", "{\"pan\": \"{V}\"}"}},
	{name: "card_mc", value: card([]string{"51", "52", "53", "54", "55", "2221", "2720", "2488"}, 16), anon: true},
	{name: "card_amex", value: card([]string{"34", "37"}, 15), anon: true},
	{name: "card_diners", value: card([]string{"36", "38", "300", "305"}, 14), anon: true},
	{name: "card_discover", value: card([]string{"6011", "65", "644", "649"}, 16), anon: true},
	{name: "card_jcb", value: card([]string{"3528", "3589", "3550"}, 16), anon: true},
	{name: "card_maestro", value: card([]string{"5018", "5038", "6304", "6759"}, 16, 18, 19), anon: true},
	{name: "card_unionpay", value: card([]string{"62"}, 16, 17, 18, 19), anon: true},
	{name: "iban", value: grammar.iban, anon: true, forms: []string{"IBAN: {V}", "Bitte auf {V} überweisen.", "Refund account {V} (SEPA)", "收款账号 {V}", "{\"account\": \"{V}\"}", "bank_account={V}&x=1"}},
	{name: "us_ssn", value: grammar.ssn, forms: []string{"SSN: {V}", "Applicant SSN {V} on file", "social security number is {V}.", "ssn={V};state=NY", "{\"tax_id\": \"{V}\"}"}},
	{name: "cn_id", value: grammar.cnID, forms: []string{"身份证{V}已核验", "身份证号：{V}", "ID card {V} verified", "用户 王梓萱 证件号码 {V}", "id_card: {V}"}},
	{name: "home_user", value: func(g grammar) string {
		return pick(g, g.syllables(3), g.syllables(2)+"."+g.syllables(2), g.syllables(2)+strconv.Itoa(10+g.IntN(89)), g.syllables(2)+"-"+g.syllables(2))
	}, forms: []string{"/home/{V}/src/app/main.go:42:7: undefined: ctx", "File \"/home/{V}/app/run.py\", line 12", "cd /Users/{V}/dev && make", "file:///home/{V}/notes.md", "/c/Users/{V}/go/bin/gopls", `C:\Users\{V}\AppData\Local\Temp\x.log`, `\\wsl$\Ubuntu\home\{V}\repo`, "drwxr-xr-x 5 root root 4096 /home/{V}/.config", "PATH=/home/{V}/bin:/usr/bin", "--volume=/Users/{V}/x:/x", "at Object.<anonymous> (/Users/{V}/x/y.js:1:2)", "vscode://file/Users/{V}/x", "open('/home/{V}/x')", "cwd=/home/{V}/w"}},
}

// namedForms are the ways to give a named secret its value.
var namedForms = []string{
	"{NAME}={V}", "export {NAME}={V}", "{NAME}=\"{V}\"", "{NAME}='{V}'", "export {NAME}=\"{V}\" # {w}", "$env:{NAME} = \"{V}\"", "set {NAME}={V}", "setx {NAME} \"{V}\"", "set -gx {NAME} {V}", "{NAME}={V} npm run {w}",
	"{w}:\n  {name}: {V}\n  retries: 3", "{w}:\n  {name}: \"{V}\"\n", "  {camel}: '{V}'\n", "- {name}: \"{V}\"", "env:\n  - name: {NAME}\n    value: \"{V}\"\n  - name: MODE\n    value: dev", "env:\n  - name: {NAME}\n    value: {V}\n", "environment:\n  - {NAME}={V}\n", "environment:\n  {NAME}: {V}\n",
	"[{w}]\n{name} = \"{V}\"\nport = 1", "[{w}]\n{name} = {V}\n", "[{w}]\n{name}={V}\n", "{dot}={V}\nserver.port=8080", "{dash}: {V}", "ENV {NAME}={V}", "ENV {NAME} {V}", "ARG {NAME}={V}", "ENV {NAME}=\"{V}\"",
	"variable \"{name}\" {\n  default = \"{V}\"\n}", "resource \"x\" \"y\" {\n  {name} = \"{V}\"\n}", "{name} = \"{V}\" # tfvars", "const {camel} = '{V}';", "const {camel}: string = \"{V}\";", "let {camel} = `{V}`", "\t{camel} := \"{V}\" // TODO move", "var {camel} = \"{V}\"", "{NAME} = \"{V}\"", "{name} = '{V}'",
	"client = Client({name}=\"{V}\", timeout=30)", "private static final String {NAME} = \"{V}\";", "'{name}' => '{V}',", "define('{NAME}', '{V}');", "{name}: '{V}',", ":{name} => \"{V}\"", "let {name} = \"{V}\".to_string();", "<{camel}>{V}</{camel}>", "<add key=\"{camel}\" value=\"{V}\" />", "<property name=\"{dot}\" value=\"{V}\"/>", "<entry key=\"{dot}\">{V}</entry>",
	"https://api.example.com/v1/x?{name}={V}&limit=10", "curl -X POST -d 'page=2&x=y&{name}={V}' https://example.com/form", "./run --{dash}={V} --verbose", "./run --{dash} {V} --verbose", "2026-06-27T20:14:45.892Z DEBUG [x] config loaded {name}={V} retries=3", "level=info msg=\"x\" {name}={V} n=3", "level=info msg=\"x\" {name}=\"{V}\"",
	`{"{camel}": "{V}", "enabled": true}`, `{"{name}":"{V}"}`, "{\n  \"{NAME}\": \"{V}\"\n}", `{"options":[{"name":"{NAME}","value":"{V}"},{"name":"MODE","value":"dev"}]}`, `{"env": ["{NAME}={V}", "LANG=C.UTF-8"]}`, `{"argv":["./tool","--{dash}","{V}","--json"]}`, "docker run -e {NAME}={V} x", "kubectl create secret generic x --from-literal={dash}={V}", "helm upgrade x . --set {camel}={V}",
	"--- a/.env\n+++ b/.env\n@@ -1,2 +1,2 @@\n-{NAME}=\n+{NAME}={V}\n MODE=dev", "-{NAME}={V}", "\x1b[36m{NAME}\x1b[0m=\x1b[33m{V}\x1b[0m\nok", "请在 .env 里设置 {NAME}={V} 然后重启服务。", "echo \"{NAME}={V}\" >> $GITHUB_ENV", "Environment=\"{NAME}={V}\"", "Environment={NAME}={V}", "os.environ[\"{NAME}\"] = \"{V}\"", "process.env.{NAME} = '{V}';", "os.Setenv(\"{NAME}\", \"{V}\")",
	"System.setProperty(\"{dot}\", \"{V}\");", "java -D{dot}={V} -jar x", "config[\"{name}\"] = \"{V}\"", "{'{name}': '{V}', 'x': 1}", "Config(host='h', {name}='{V}')", "| {NAME} | `{V}` |", "* {NAME}: `{V}`", "{name}=\"{V}\"", "```env\n{NAME}={V}\n```\nthen run `make`", "set {NAME}={V}\r\necho ok\r\n", "Set-Item -Path Env:{NAME} -Value '{V}'", "<string name=\"{name}\">{V}</string>",
	"\"{camel}\" = \"{V}\"", "{name}: {V} # {w}", "{NAME}={V};MODE=dev", "{NAME}: {V}", "gh secret set {NAME} --body \"{V}\"", "fly secrets set {NAME}={V}", "$ cat .env\n{NAME}={V}\nPORT=3000\n", "      {NAME}: '{V}'\n      CI: true", "printenv | grep {NAME}\n{NAME}={V}\n", "#define {NAME} \"{V}\"", "std::string {name} = \"{V}\";", "{Camel} = \"{V}\",", "public string {Camel} { get; set; } = \"{V}\";", "  \"{Camel}\": \"{V}\",", "{name}:{V}", "{camel}={V}",
}

// anonForms show a secret that is known by its look.
var anonForms = []string{
	"here is my key {V}, don't commit it", "Use this key: {V} for the deploy.", "| {w} | `{V}` |", "981,{w},{V},2026-04-15", "我的密钥是 {V}，请不要提交。", "密钥：{V}。", "トークンは「{V}」です。", "토큰은 {V} 입니다", "ключ: {V}, спасибо", "المفتاح هو {V} شكرا", "la clave es {V}.", "clé : « {V} »", "Mein Schlüssel lautet {V} – bitte nur lokal nutzen", "🔑 {V} 🔒",
	"Error: Invalid credential provided: {V}. Check your dashboard.", "client.setAuth('{V}')  # x", "curl -sS -H \"Authorization: Bearer {V}\" https://api.example.com/v1/x", "({V})", "<{V}>", "[{V}]", "x={V}", "\t{V}\n", "{V}", "// {V}", "<!-- {V} -->", "{w}\t{V}\t{w}", "\"{V}\",", "-> {V}", "token={V}&x=1", "$ echo {V} | pbcopy", "login({w}, \"{V}\");", "*{V}*", "**{V}**", "{V}\r\n", "「{V}」", "{w}:{V}",
}

func words2(n string, sep string, f func(i int, w string) string) string {
	var out []string
	for i, w := range strings.Fields(n) {
		out = append(out, f(i, w))
	}
	return strings.Join(out, sep)
}

func title(w string) string { return strings.ToUpper(w[:1]) + w[1:] }

func (g grammar) fill(form, name, value string) string {
	same := func(_ int, w string) string { return w }
	r := strings.NewReplacer("{NAME}", strings.ToUpper(words2(name, "_", same)), "{name}", words2(name, "_", same), "{dash}", words2(name, "-", same), "{dot}", words2(name, ".", same),
		"{camel}", words2(name, "", func(i int, w string) string {
			if i == 0 {
				return w
			}
			return title(w)
		}), "{Camel}", words2(name, "", func(_ int, w string) string { return title(w) }))
	s := r.Replace(form)
	for strings.Contains(s, "{w}") {
		s = strings.Replace(s, "{w}", g.syllables(2+g.IntN(2)), 1)
	}
	return strings.ReplaceAll(s, "{V}", value)
}

var zeroWidths = []string{"\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad"}

// encodings turn a text that holds the value into a record.
var encodings = map[string]func(g grammar, text, value string) (any, bool){
	"plain": func(g grammar, t, v string) (any, bool) { return map[string]any{"text": t}, true },
	"lines": func(g grammar, t, v string) (any, bool) {
		return map[string]any{"text": g.prose() + "\n" + t + "\n" + g.prose()}, true
	},
	"crlf": func(g grammar, t, v string) (any, bool) {
		return strings.ReplaceAll(t, "\n", "\r\n") + "\r\n", !strings.Contains(v, "\n")
	},
	"json1": func(g grammar, t, v string) (any, bool) {
		return quoteJSON(map[string]any{"command": t, "timeout": 3}), true
	},
	"json2": func(g grammar, t, v string) (any, bool) {
		return quoteJSON(map[string]any{"name": "bash", "arguments": quoteJSON(map[string]any{"text": t})}), true
	},
	"json3": func(g grammar, t, v string) (any, bool) {
		return quoteJSON([]any{quoteJSON(map[string]any{"a": quoteJSON(map[string]any{"t": t})})}), true
	},
	"json in text": func(g grammar, t, v string) (any, bool) {
		return "Result: " + quoteJSON(map[string]any{"text": t, "n": 1}) + "\n", true
	},
	"json2 in text": func(g grammar, t, v string) (any, bool) {
		return "data: " + quoteJSON(map[string]any{"arguments": quoteJSON(map[string]any{"text": t})}), true
	},
	"json cut": func(g grammar, t, v string) (any, bool) {
		x := quoteJSON(map[string]any{"arguments": t, "n": "end"})
		return x[:len(x)-9], true
	},
	"ascii json": func(g grammar, t, v string) (any, bool) {
		return "data: " + asciiJSON(map[string]any{"text": t, "n": 1}), true
	},
	"percent": func(g grammar, t, v string) (any, bool) {
		return "https://example.com/x?next=" + url.QueryEscape(t) + "&page=2", true
	},
	"path": func(g grammar, t, v string) (any, bool) {
		return "GET /x/" + url.PathEscape(t) + " HTTP/1.1", true
	},
	"form": func(g grammar, t, v string) (any, bool) { return "page=2&x=" + url.QueryEscape(t), true },
	"percent json": func(g grammar, t, v string) (any, bool) {
		return "https://example.com/cb?state=" + url.QueryEscape(quoteJSON(map[string]any{"t": t, "n": 1})) + "&page=2", true
	},
	"base64": func(g grammar, t, v string) (any, bool) {
		return base64.StdEncoding.EncodeToString([]byte(g.pad() + t)), true
	},
	"base64url": func(g grammar, t, v string) (any, bool) {
		return "echo " + base64.RawURLEncoding.EncodeToString([]byte(g.pad()+t)) + " | base64 -d", true
	},
	"base64 wrapped": func(g grammar, t, v string) (any, bool) {
		return "b64:\n" + wrapLines(base64.StdEncoding.EncodeToString([]byte(g.pad()+g.prose()+"\n"+t+"\n"+g.prose())), pick(g, 64, 76)), true
	},
	"base64 json": func(g grammar, t, v string) (any, bool) {
		return base64.StdEncoding.EncodeToString([]byte(quoteJSON(map[string]any{"text": t}))), true
	},
	"zero width": func(g grammar, t, v string) (any, bool) {
		w := v
		for n := 1 + g.IntN(3); n > 0; n-- {
			i := 1 + g.IntN(len(v)-2)
			if i < len(w) && w[i] < 0x80 && w[i-1] < 0x80 {
				w = w[:i] + pick(g, zeroWidths...) + w[i:]
			}
		}
		return strings.ReplaceAll(t, v, w), !strings.Contains(v, "\n")
	},
	"ansi": func(g grammar, t, v string) (any, bool) {
		i := len(v) / 2
		w := "\x1b[33m" + v[:i] + "\x1b[1m" + v[i:] + "\x1b[0m"
		return strings.ReplaceAll(t, v, w), !strings.Contains(v, "\n") && !strings.Contains(t, "\x1b")
	},
	"split": func(g grammar, t, v string) (any, bool) { return map[string]any{"texts": g.cut(t, v)}, true },
	"deltas": func(g grammar, t, v string) (any, bool) {
		var out []any
		for _, p := range g.cut(t, v) {
			out = append(out, map[string]any{"type": "delta", "text": p})
		}
		return map[string]any{"stream": out}, true
	},
	"key": func(g grammar, t, v string) (any, bool) {
		return map[string]any{t: map[string]any{"n": 1}, "other": 2}, len(t) < 200
	},
	"argv": func(g grammar, t, v string) (any, bool) {
		return map[string]any{"argv": strings.Fields(strings.NewReplacer("'", "", "\"", "").Replace(t))}, (strings.HasPrefix(t, "./") || strings.Contains(t, " -")) && !strings.ContainsAny(v, " \n'\"") && !strings.ContainsAny(t, "\n|;>:{")
	},
	"array line": func(g grammar, t, v string) (any, bool) { return []any{"first line", t, "last line"}, true },
}

func (g grammar) pad() string { return pick(g, "", "x ", "ab ") }

func (g grammar) prose() string {
	return pick(g, "The build is green.", "请把日志级别改成 debug", "see docs/setup.md for more", "fix: typo", "import os, sys", "ok", "# notes", "キャッシュを消して", "Готово.", "const x = 1800;", "drwxr-xr-x 2 root root 40 .")
}

func asciiJSON(v any) string {
	var b strings.Builder
	for _, r := range quoteJSON(v) {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func wrapLines(s string, n int) string {
	var out []string
	for len(s) > n {
		out = append(out, s[:n])
		s = s[n:]
	}
	return strings.Join(append(out, s), "\n")
}

// cut splits t in pieces, one of the cuts inside the value.
func (g grammar) cut(t, v string) []string {
	at := strings.Index(t, v)
	i := at + 1 + g.IntN(len(v)-1)
	cuts := []int{i}
	for n := g.IntN(3); n > 0; n-- {
		cuts = append(cuts, 1+g.IntN(len(t)-1))
	}
	sort.Ints(cuts)
	var out []string
	last := 0
	for _, c := range cuts {
		for c < len(t) && t[c]&0xc0 == 0x80 {
			c++
		}
		if c > last {
			out = append(out, t[last:c])
			last = c
		}
	}
	return append(out, t[last:])
}

// grammarCase is one drawn case.
type grammarCase struct {
	kind *secretKind
	form string
	enc  string
	text string
	v    string
	doc  []byte
}

// cases draws n cases for each kind.
func (g grammar) cases(n int) []grammarCase {
	var names []string
	for e := range encodings {
		names = append(names, e)
	}
	sort.Strings(names)
	var out []grammarCase
	for i := range grammarKinds {
		k := &grammarKinds[i]
		var forms []string
		forms = append(forms, k.forms...)
		if len(k.names) > 0 {
			forms = append(forms, namedForms...)
		}
		if k.anon {
			forms = append(forms, anonForms...)
		}
		for m := 0; m < n && len(forms) > 0; m++ {
			f, e := pick(g, forms...), pick(g, names...)
			c := grammarCase{kind: k, form: f, enc: e}
			c.v = k.value(g)
			name := ""
			if len(k.names) > 0 {
				name = pick(g, k.names...)
			}
			v := c.v
			if strings.Contains(f, "\": \"{V}") && strings.HasPrefix(strings.TrimSpace(f), "{") {
				v = strings.Trim(quoteJSON(v), `"`)
			}
			c.text = g.fill(f, name, v)
			rec, ok := encodings[e](g, c.text, v)
			if !ok {
				continue
			}
			var b bytes.Buffer
			w := json.NewEncoder(&b)
			w.SetEscapeHTML(g.IntN(2) == 0)
			if err := w.Encode(map[string]any{"type": "tool/result", "id": "call_" + g.of(gAlnum, 24), "data": rec}); err != nil {
				panic(err)
			}
			c.doc = b.Bytes()
			out = append(out, c)
		}
	}
	return out
}

// left reports whether the value, or a long line of it, is in out in any form.
func left(t *testing.T, out []byte, v string) bool {
	for _, l := range strings.Split(v, "\n") {
		if len(l) >= 12 || !strings.Contains(v, "\n") {
			if survives(t, out, l) {
				return true
			}
		}
	}
	return false
}

var hiddenText = regexp.MustCompile("[\u200b\u200c\u200d\u2060\ufeff\u00ad]|\x1b\\[[0-9;]*[A-Za-z]")

// shown is a document as a reader sees it: without what is invisible.
func shown(v any) any {
	switch v := v.(type) {
	case string:
		var n any
		if len(v) > 1 && strings.ContainsAny(v[:1], `{["`) && json.Unmarshal([]byte(v), &n) == nil {
			return quoteJSON(shown(n))
		}
		return hiddenText.ReplaceAllString(v, "")
	case []any:
		for i := range v {
			v[i] = shown(v[i])
		}
	case map[string]any:
		for k, x := range v {
			v[k] = shown(x)
		}
	}
	return v
}

func asShown(t *testing.T, out []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	return []byte(quoteJSON(shown(v)))
}

func TestTheGrammarOfEachKindIsFound(t *testing.T) {
	e := builtin(t)
	n, seeds := 60, []uint64{1, 2}
	if s := os.Getenv("GRAMMAR_N"); s != "" {
		n, _ = strconv.Atoi(s)
		seeds = []uint64{11, 12, 13, 14}
	}
	if sampled() {
		n = 6
	}
	type score struct{ found, total int }
	kinds, encs, forms := map[string]*score{}, map[string]*score{}, map[string]*score{}
	count := func(m map[string]*score, k string, ok bool) {
		if m[k] == nil {
			m[k] = &score{}
		}
		m[k].total++
		if ok {
			m[k].found++
		}
	}
	var all, hard score
	told := map[string]int{}
	for _, seed := range seeds {
		for _, c := range newGrammar(seed).cases(n) {
			out, _, err := e.JSON(nil, c.doc)
			if err != nil {
				t.Fatal(err)
			}
			ok := !left(t, out, c.v) && !left(t, asShown(t, out), c.v)
			count(kinds, c.kind.name, ok)
			count(encs, c.enc, ok)
			count(forms, c.form, ok)
			s := &all
			if c.kind.hard {
				s = &hard
			}
			s.total++
			if ok {
				s.found++
			} else if key := c.kind.name + c.form; told[key] < 1 {
				told[key]++
				t.Logf("MISS %s | %q | %s: %q -> %s", c.kind.name, c.form, c.enc, c.v, out)
			}
		}
	}
	for name, m := range map[string]map[string]*score{"kind": kinds, "encoding": encs, "form": forms} {
		var keys []string
		for k := range m {
			if m[k].found < m[k].total {
				keys = append(keys, k)
			}
		}
		sort.Slice(keys, func(i, j int) bool {
			return m[keys[i]].total-m[keys[i]].found > m[keys[j]].total-m[keys[j]].found
		})
		for _, k := range keys {
			t.Logf("%s %q: %d of %d", name, k, m[k].found, m[k].total)
		}
	}
	t.Logf("found %d of %d (%.2f %%), hard kinds %d of %d", all.found, all.total, 100*float64(all.found)/float64(all.total), hard.found, hard.total)
	if float64(all.found) < 0.995*float64(all.total) || float64(hard.found) < 0.95*float64(hard.total) {
		t.Error("below the target")
	}
}
