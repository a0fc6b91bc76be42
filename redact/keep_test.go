package redact_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// cleanTexts are lines that look like secrets and are none. {h40} and the like
// are drawn as in the grammar of secrets, {U} is a UUID, {w} a word.
var cleanTexts = []string{
	// Identifiers, digests, versions, times.
	"commit {h40}", "index {h7}..{h7} 100644", "session_key={U}", "request_id: {U}", "trace_id={h32} span_id={h16}", "etag: W/\"{h32}\"", "sha256:{h64}", "\"integrity\": \"sha512-{b64}\"", "h1:{b32}", "example.com/token-auth v1.2.3 h1:{b32}",
	"checksum = \"{h64}\"", "digest: sha256:{h64}", "image: registry.example.com/x@sha256:{h64}", "resolved \"https://registry.example.org/x/-/x-1.2.{d2}.tgz#{h40}\"", "{U}", "call_{a24}", "msg_01{a22}", "toolu_01{a22}", "chatcmpl-{a29}", "resp_{h48}", "req_{a24}", "fc_{h48}", "gen-17{d8}-{a20}",
	"2026-05-0{d1}T12:00:0{d1}.123Z", "startTime=17485035{d5} build 744-90{d2}.54", "nanos=17485035430{d2}000000", "v7.4.11701.3{d2}", "3.1.{d1}.0", "build number 20260{d3}.{d2}", "1.2.840.113549.1.9.{d2}", "0x{h12}", "goroutine 1 [running]: main.f(0x{h12}, 0x0)", "ISBN 978-3-16-14841{d1}-0", "pid={d5} tid={d7}",
	"duration=12{d3}ms", "offset 12{d8}", "lat=52.52{d5} lon=13.40{d5}", "192.168.1.{d1}:80{d2}", "port 5432", "12:3{d1}:56 +0200", "bytes 0-1023/{d6}", "{d4}-{d2}-{d2}", "id {d9}", "order #{d8}", "RFC {d4}", "inode {d8}", "ticket ABC-{d4}", "CVE-2021-{d5}", "$1,{d3}.{d2}", "{d3},{d3},{d3}",
	// Quantities and names.
	"max_tokens: 4096", "input_tokens={d5} output_tokens={d3}", "\"total_tokens\": {d5}", "tokens per second: {d2}", "maxTokens = {d4};", "token_count={d4}", "token limit of {d5} reached", "cache_read_input_tokens: {d5}", "num_tokens={d3}", "password_length=12", "passwordMinLength: 8", "password_reset_url=https://example.com/reset",
	"tokenType: bearer", "token_type=Bearer", "auth_method=password", "secret_name: db-credentials", "secretName: my-tls", "api_key_id uuid", "ALTER TABLE x ADD COLUMN api_key_id uuid;", "private_key_path: /etc/ssl/private/server.key", "key_file = /etc/x/server.key", "password_file: /run/secrets/pw", "credentials: include", "credentials: 'same-origin'", "token_endpoint: https://id.example.com/oauth/token",
	"access_key_id column", "primary key (id)", "foreign key (user_id) references users", "key: value", "keys: [a, b]", "sort_key=created_at", "partition_key=id", "cache_key = f\"user:{id}\"", "public_key: ssh-rsa", "api_version=2024-01-01",
	// References and placeholders.
	"password: {{ secrets.DB_PASS }}", "password: ${DB_PASSWORD}", "PASSWORD=$(cat /run/secrets/pw)", "PASSWORD=$DB_PASS", "api_key = None", "password: null", "passwordless: true", "Authorization: Bearer <your-token-here>", "Authorization: Bearer ${token}", "`Bearer ${clientToken}`", "api_key=os.environ[\"API_KEY\"]", "token = process.env.TOKEN",
	"const apiKey = process.env.OPENAI_API_KEY;", "password := os.Getenv(\"DB_PASSWORD\")", "secret: getSecret('db')", "token: ${{ secrets.GITHUB_TOKEN }}", "password: \"\"", "API_KEY=", "API_KEY=xxxxxxxx", "password=********", "password: '<password>'", "DB_PASSWORD=changeme-please", "TOKEN=your_token_here", "secretKeyRef:\n  name: db\n  key: password", "valueFrom: arn:aws:ssm:eu-1:123:parameter/x",
	"password = input(\"Password: \")", "password = getpass.getpass()", "api_key: Optional[str] = None", "password: str", "token: string;", "token?: string", "password: Joi.string().min(8)", "password = models.CharField(max_length=128)", "def login(user, password):", "func Login(user, password string) error {", "return check(user, password=password)", "if (password !== confirmPassword) {",
	"setToken(response.data.token)", "const { token } = useAuth();", "token = tokenizer.next_token()", "tokens = line.split()", "for token in tokens:", "self.secret = secret", "this.password = password;", "password: this.state.password,", "await bcrypt.hash(password, 10)", "user.password = hashedPassword", "type Token struct {", "export interface AuthToken {", "Token::Identifier(name) =>", "case TOKEN_STRING: return parse();",
	"<input type=\"password\" name=\"password\" placeholder=\"Password\">", "<label for=\"password\">Password</label>", "secret = Secret.new(name)", "c.SecretKey = cfg.SecretKey", "assert token is not None", "const password = await prompt('Password:');", "let token = lexer.peek();", "token := scanner.Token()", "expect(token).toBe('access_token')", "@Value(\"${db.password}\") String password;",
	// Prose.
	"password check skipped, token refresh not needed", "The password policy requires 12 characters.", "Das Passwort-Feld ist leer, der Key-Name heißt apiKey.", "Please enter your password: it must not be empty.", "the token is expired", "the secret of good design", "Password is required", "password is incorrect", "Invalid API key provided", "token bucket algorithm", "密码字段的校验逻辑在哪里", "パスワードを忘れた方はこちら", "token: the unit of text that a model reads",
	"I forgot my password, how do I reset it?", "use a password manager", "rotate the secret every 90 days", "password is stored as a hash", "the key is to keep it simple", "Login with user and password", "password must contain letters and numbers", "your session token will be refreshed automatically", "the password is not valid", "mot de passe oublié ?", "la contraseña es obligatoria", "пароль не найден", "Passwort ist erforderlich", "the secret is out", "credentials are missing", "Basic authentication is disabled", "bearer token authentication", "the API key is invalid or expired", "Set the password to something strong", "pwd: current directory", "password reset link sent", "token = word",
	// i18n, minified, markup.
	"login.password=Password", "label.password = Passwort", "\"password\": \"Passwort\" // i18n", "!function(e,t){\"object\"==typeof exports?module.exports=t():e.token=t()}(this,function(){return{key:1,a:function(e){return e.key||e.which}}});", "a.token=b,c.key=d;var e={password:f,secret:g()};", ".token.keyword{color:#07a}", "[![build](https://img.shields.io/x)](https://ci.example.com/a/b)", "https://example.com/docs/authentication#api-keys", "https://example.com/a?utm_source=x&page={d2}&sort=key",
	"\"jsonwebtoken\": \"^9.0.{d1}\",", "\"parse-passwd\": \"~1.0.0\"", "jsonwebtoken: 9.0.2", "csrf-token@^1.{d1}.0:", "zxcvbn-password@1.2.3", "PASS=\"\\x1b[32mPASS\"", "sk-ecdsa-sha2-nistp256@openssh.com", "token := &oauth2.Token{", "amzTokenKey = v4Internal.AmzTokenKey", "`derivePassword`, `sha256sum`", "const credential = \"Credential=\"", "Convert password to UTF-16LE", "sessionAuthKey = \"s3_disable_session\"",
	"data:image/png;base64,iVBORw0KGgo={w}", "sk-learn-some-module", "sk-SK", "hf_model_name", "pat-answer", "key-value-store", "s.method()", "git@github.com:org/repo.git", "react@18.2.0 logo@2x.png", "npm i @types/node@20", "ssh -i ~/.ssh/id_ed25519 host", "curl -H 'Authorization: Bearer $TOKEN' https://x", "curl -u \"$USER:$PASS\" https://x", "mysql -u root -p", "docker login -u x --password-stdin", "psql postgres://localhost/x", "postgres://user:${PASS}@h/x", "http://localhost:8080/x@y", "https://medium.com/@someone/x",
	"-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{a43} host", "uid={d4}(x) gid={d4}(x)", "Content-Length: {d5}", "X-Request-Id: {U}", "x-amzn-trace-id: Root=1-{h8}-{h24}", "Cookie: theme=dark; lang=en", "Set-Cookie: locale=en; Path=/", "drwxr-xr-x 5 root root 4096 May 1 12:00 token", "/home/runner/work/x", "/usr/share/keys", "/Users/shared/x", "C:\\Users\\Public\\x",
	"kind: Secret\nmetadata:\n  name: x\n", "token: {w}", "secret={w}", "| token | the access token |", "| password | string | required |", "SELECT password FROM users WHERE id = ?", "INSERT INTO users (name, password) VALUES (?, ?)", "UPDATE users SET password = :password", "CREATE TABLE users (password varchar(255) not null)", "GRANT SELECT ON x TO y", "--password-stdin", "--token-file /x", "flag.String(\"password\", \"\", \"the password\")", "tokens: {d4} / {d6}", "#define TOKEN_MAX 100", "enum { TOKEN_A, TOKEN_B };",
	"phone: n/a", "tel: see below", "call {d3}", "version 1.800.555", "range 555-0199", "ext. {d4}", "0800 - 1200 open", "10-12-2026 - 11-12-2026", "{d2}/{d2}/2026", "score 4111 of 5000", "table: 4111 1111", "{d6} {d6}", "DE{d2} motorway", "GB 2026",
}

func (g grammar) clean() string {
	s := g.fill(pick(g, cleanTexts...), "", "")
	for strings.Contains(s, "{U}") {
		s = strings.Replace(s, "{U}", g.uuid(), 1)
	}
	return g.pattern(s)
}

func TestWhatOnlyLooksLikeASecretStays(t *testing.T) {
	e := builtin(t)
	n := 20000
	if sampled() {
		n = 2000
	}
	var names []string
	for k := range encodings {
		if k != "argv" && k != "split" && k != "deltas" && k != "zero width" && k != "ansi" {
			names = append(names, k)
		}
	}
	sort.Strings(names)
	g := newGrammar(31)
	lost, told := 0, map[string]int{}
	for i := 0; i < n; i++ {
		text := g.clean()
		if i%4 == 0 {
			text += "\n" + g.clean()
		}
		enc := pick(g, names...)
		rec, ok := encodings[enc](g, text, text)
		if !ok {
			continue
		}
		doc := quoteJSON(map[string]any{"data": rec})
		out, rep, err := e.JSON(nil, []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if string(out) != doc {
			lost++
			if key := fmt.Sprint(rep.Counts); told[key] < 12 {
				told[key]++
				t.Logf("%s %v: %q", enc, rep.Counts, text)
			}
		}
	}
	t.Logf("%d of %d changed", lost, n)
	if lost*200 > n {
		t.Errorf("%d of %d changed", lost, n)
	}
}

// The sources of Go's standard library, without tests, hold next to no secret.
func TestSourcesOfTheStandardLibraryStay(t *testing.T) {
	if sampled() {
		t.Skip("reads 70 MB")
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("the go command is not here")
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "src")
	if _, err := os.Stat(root); err != nil {
		t.Skip("the sources of Go are not here")
	}
	e := builtin(t)
	size, markers, rules := 0, 0, map[string]int{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testdata/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		size += len(text)
		_, rep, err := e.Text(nil, string(text))
		if err != nil {
			return err
		}
		for rule, n := range rep.Counts {
			markers += n
			rules[rule] += n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	perMB := float64(markers) / float64(size) * 1e6
	t.Logf("%d markers in %.0f MB, %.1f a MB: %v", markers, float64(size)/1e6, perMB, rules)
	if perMB > 10 {
		t.Errorf("%.1f markers a MB", perMB)
	}
}
