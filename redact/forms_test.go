package redact_test

import (
	"strings"
	"testing"
)

// Ways of writing a secret down that are neither JSON nor one of the usual
// encodings. The values are drawn at random once.

func TestSecretsAreFoundBehindReferencesOfMarkup(t *testing.T) {
	e := builtin(t)
	for _, c := range []struct{ in, gone, stays string }{
		{`{"t":"<pre>export DD_API_KEY=&quot;306404d5fb18b1df88f4aafb685ddc3c&quot;</pre>"}`, "306404d5", `DD_API_KEY=&quot;[REDACTED:generic-api-key]&quot;</pre>`},
		{`{"t":"&lt;property name=&#34;admin.pwd&#34; value=&#34;yx!ZnxjHEQZ2!8Y9&#34;/&gt;"}`, "yx!Znx", `value=&#34;[REDACTED:bridge-assignment]&#34;/&gt;`},
		{`{"t":"SMTP_PASS=&#x27;j%dkvyx1uuX41&#x27; ./run.sh"}`, "j%dkvyx", `SMTP_PASS=&#x27;[REDACTED:bridge-assignment]&#x27; ./run.sh`},
		{`{"t":"{&amp;quot;x-api-key&amp;quot;:&amp;quot;EZZLEIVY0G1NsT0F93Kba4mpP8Bx6OPC&amp;quot;}"}`, "EZZLEIVY", `:&amp;quot;[REDACTED:`},
		{`{"t":"<secretKey>&#102;KcAn8ZD&#65;pweIwlTiXm</secretKey>"}`, "pweIwlT", `<secretKey>[REDACTED:bridge-assignment]</secretKey>`},
		{`{"t":"bash -c 'export DB_PASSWORD='\\''b7c!b868df03'\\'' && make'"}`, "b868df03", `DB_PASSWORD='\\''[REDACTED:bridge-assignment]'\\'' && make'`},
	} {
		out := redactJSON(t, e, c.in)
		if strings.Contains(out, c.gone) || !strings.Contains(out, c.stays) {
			t.Errorf("%s\n%s", c.in, out)
		}
	}
	for _, in := range []string{
		`{"t":"<p>Fish &amp; chips &lt;b&gt; &#169; &nbsp;&hellip; AT&T; R&D &#x; &#99999999; &quot;token&quot;</p>"}`,
		`{"t":"https://example.com/?a=1&amp;page=2&amp;sort=key"}`,
		`{"t":"echo 'it'\\''s a password'"}`,
	} {
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%s\n%s", in, out)
		}
	}
}

const (
	machine = "Zvb67lERDvp7x2QHUbmHpTx1kOUmVwTa"
	chosen  = "Sofa!zo_7763"
)

func TestValuesAreFoundAroundWhatStandsBetweenThemAndTheirNames(t *testing.T) {
	e := builtin(t)
	for _, text := range []string{
		// On the next line.
		"const apiKey =\n  '{M}';", "\"dbPassword\":\n    \"{P}\",", "api_key = (\n    \"{M}\"\n)", "os.environ.setdefault(\n    \"DB_PASSWORD\",\n    \"{P}\",\n)",
		"./deploy --db-password \\\n  {P} \\\n  --json", "curl \\\n  -u jane:{P} \\\n  https://x.example",
		"apiKey: !!str {M}",
		// In listings, diffs, quotes, logs.
		"     1\tdb:\n     2\t  password: hunter\n     3\t  port: 1", "    1→db:\n    2→  password: hunter\n", "db.ini:2:password: hunter", "> db:\n>   password: hunter\n",
		"    11\t- name: DB_PASSWORD\n    12\t  value: {P}\n", "+- name: API_KEY\n+  value: {M}", "k8s/a.yaml-3-  - name: API_KEY\nk8s/a.yaml-4-    value: {M}", "2026-01-02T10:00:00.1Z app-1  | - name: API_KEY\n2026-01-02T10:00:00.2Z app-1  |   value: {M}",
		"   7 | secret_key: |\n   8 |   {M}",
		// In tables, cells and columns.
		"<td>DB_PASSWORD</td><td>{P}</td>", "<tr><td>API_KEY</td>\n<td><code>{M}</code></td></tr>", "<dt>Password:</dt><dd>{P}</dd>", "<b>Password:</b> {P}<br>", "| **DB_PASSWORD** | `{P}` | prod |", "- **Password:** {P}", "* *API key*: {M}",
		"Key         Value\n---         -----\npassword    {P}\n", "API_KEY\t{M}\tprod",
		// In programs.
		"const s = { :db-password \"{P}\" }", "const password = process.env.PW || \"{P}\";", "const pw = process.env.DB_PASSWORD ?? '{P}'", "$p = getenv('DB_PASSWORD') ?: '{P}';", "password = os.environ.get('PW') or '{P}'", "password: \"{{ lookup('env', 'X') | default('{P}') }}\"",
		"if (req.password === '{P}') {", "parser.add_argument(\"--password\", default=\"{P}\")", ".option('db-password', { default: '{P}' })", "cy.get('#password').type('{P}')", "page.getByLabel('Password').fill('{P}')", "page.type('input[name=password]', '{P}');",
		"<input value=\"{P}\" name=\"password\">", "UPDATE config SET value='{M}' WHERE name='api_key';", "INSERT INTO u (name, at, password) VALUES ('a', now(), '{P}'), ('b', f(1, 2), '{P}');", "gh secret set API_KEY -b\"{M}\"", "git config --global acme.token {M}",
	} {
		in := strings.NewReplacer("{M}", machine, "{P}", chosen).Replace(text)
		for _, doc := range []string{quoteJSON(map[string]any{"t": in}), quoteJSON(map[string]any{"t": quoteJSON(map[string]any{"text": in})})} {
			out := redactJSON(t, e, doc)
			for _, v := range []string{machine, chosen, "hunter"} {
				if strings.Contains(out, v) {
					t.Errorf("%q: %s", text, out)
				}
			}
		}
	}
}

func TestWhatStandsNearANameStays(t *testing.T) {
	e := builtin(t)
	for _, text := range []string{
		"type User struct {\n\tName      *uint16\n\tPassword  *uint16\n\tToken     oauth2.Token2\n}", "  password  varchar(255)\n", "password   String? @db.VarChar(255)", "Token    string   the token2 of a user",
		"[\n  \"password\",\n  \"base64Format_227_x9\",\n  \"go/token\",\n  \"hash/adler32\"\n]", "# splituser('user[:passwd]@host[:port]') --> 'user[:passwd]', 'host[:port]'", "{Type: token.NotIndicator,\n  60\tValue:   \"0x_1A_2B_3C\"}",
		"\"token\":\n  \"other2\": 1", "const token =\n  await getToken2();", "<td>password</td><td>string</td>", "<label>Password:</label> <input>", "| **password** | `string` | required |", "- **Password:** must not be empty",
		"const token = process.env.TOKEN || \"\";", "const token = opts.token || 'missing';", "if (token === 'string2') {", "parser.add_argument(\"--password\", help=\"p4\", default=None)", "page.getByLabel('Password').fill(password)",
		"     1\tpassword: ${DB_PASSWORD}\n     2\ttoken: string\n", "git config --global user.email", "token: !!str\n", "password: !!null null",
	} {
		in := quoteJSON(map[string]any{"t": text})
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%q: %s", text, out)
		}
	}
}

func TestColumnsOfTablesAreFound(t *testing.T) {
	e := builtin(t)
	for _, text := range []string{
		"id,username,password\n1,jane,{P}\n2,joe,{P}\n", "username,password\r\njane,{P}\r\n", "\"user\",\"api_key\"\n\"a, b\",\"{M}\"", "name;passwort;rolle\na;{P};b", "username\tpassword\njane\t{P}",
		" id | name | password\n----+------+---------\n  1 | x    | {P}\n(1 row)", "+----+-----------+\n| id | password  |\n+----+-----------+\n|  1 | {P} |\n+----+-----------+", "| id | name | Password |\n|---:|------|----------|\n| 1 | x | `{P}` |", "     1\tname,token\n     2\tx,{M}\n", "+name,token\n+x,{M}\n",
		"COPY public.users (id, name, password) FROM stdin;\n1\tx\t{P}\n2\ty\t{P}\n\\.\n", "CREATE USER x IDENTIFIED WITH mysql_native_password BY '{P}';",
		"Content-Disposition: form-data; name=\"password\"\r\n\r\n{P}\r\n--b", "array(1) {\n  [\"DB_PASSWORD\"]=>\n  string(12) \"{P}\"\n}", "SSHPASS={P} sshpass -e ssh h",
	} {
		in := strings.NewReplacer("{M}", machine, "{P}", chosen).Replace(text)
		out := redactJSON(t, e, quoteJSON(map[string]any{"t": in}))
		if strings.Contains(out, machine) || strings.Contains(out, chosen) {
			t.Errorf("%q: %s", text, out)
		}
	}
	for _, text := range []string{
		"import (\n\tUser,\n\tPassword,\n\tToken_128_CBC_SHA,\n)", "  user, password = a1\n  base64_9x, b2\n", "case strfmt.Password, *strfmt.Password:\n\tx\ncase strfmt.UUID3, *strfmt.UUID3:", "name,tokens\nx,123456\ny,99", "model,token\ngpt,word\n",
		"| field | password |\n|---|---|\n| type | string |\n| min | 12 |", "attribute = token\nvalue = token | quoted-string\n", "// reads (role, secret) from stdin\n// a\tSTS2b\n", "| Option | Token |\n|---|---|\n| a | `max_tokens` |",
	} {
		in := quoteJSON(map[string]any{"t": text})
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%q: %s", text, out)
		}
	}
}

func TestPasswordsThatOnlyTheirPlaceNamesAreFound(t *testing.T) {
	e := builtin(t)
	for _, text := range []string{
		"curl -sSLu jane:{P} https://x.example", "docker login --password-stdin <<< \"{P}\"", "skopeo login -u jane -p {P} reg.example", "oc login -u jane -p '{P}' https://x.example", "bcp db out f -U sa -P {P}", "twine upload -u jane -p {P} dist/*", "mosquitto_pub -u jane -P {P} -t x",
		"rabbitmqctl add_user jane {P}", "rabbitmqctl change_password jane '{P}'", "htpasswd -bc f jane {P}", "htpasswd -nb jane {P}", "htpasswd -B -b f jane '{P}'", "net user jane {P} /add", "mc alias set x https://h.example jane {P}", "zip -e -P '{P}' a.zip x", "ssh-keygen -t rsa -N '{P}' -f k", "xfreerdp /u:jane /p:{P} /v:h",
		"echo \"jane:{P}\" | sudo chpasswd", "echo {P} | cryptsetup luksOpen /dev/x y", "usermod -p '{P}' jane", "redis> AUTH default {P}", "AUTH {P}\n", "requirepass {P}\n", "CONFIG SET requirepass {P}", "codecov -t {M}", "vault login {M}", "ngrok config add-authtoken {M}", "dotnet nuget push x -k {M} -s y",
		"requests.get(u, auth=('jane', '{P}'))", "auth = HTTPBasicAuth(\"jane\", password=\"{P}\")", "req.SetBasicAuth(user, \"{P}\")", "new NetworkCredential(\"jane\", \"{P}\")", "DriverManager.getConnection(url, \"jane\", \"{P}\")", "db.auth(\"jane\", \"{P}\")", "client.login('jane@example.com', '{P}')",
		"ConvertTo-SecureString -String '{P}' -AsPlainText -Force", "$c = ConvertTo-SecureString \"{P}\" -AsPlainText", "sql.Open(\"mysql\", \"jane:{P}@tcp(h:3306)/x\")",
	} {
		in := strings.NewReplacer("{M}", machine, "{P}", chosen).Replace(text)
		for _, doc := range []string{quoteJSON(map[string]any{"command": in}), quoteJSON(map[string]any{"arguments": quoteJSON(map[string]any{"command": in})})} {
			out := redactJSON(t, e, doc)
			if strings.Contains(out, machine) || strings.Contains(out, chosen) {
				t.Errorf("%q: %s", text, out)
			}
		}
	}
	for _, text := range []string{
		"sudo -u git mkdir -p /srv/x2", "docker run -u 1000 -p 8080:80 x", "ssh -l jane -p 2222 h", "cp -u -p a2 b2", "psql -U jane -p 5432", "net user jane", "htpasswd -c f jane", "htpasswd \"\", x", "curl -sSLu $USER:$PASS https://x", "xfreerdp /u:jane /p: /v:h", "git push -u origin -p", "mkdir -p a2/b",
		"the auth module v2 of", "AUTH_TOKEN_2 x", "req.SetBasicAuth(user, password)", "login(\"jane\", \"$Config::Config{cf_email}\")", "router.get('/x', auth('read2'), f)", "login(page, 'home')", "ConvertTo-SecureString Copy-Item", "ConvertTo-SecureString $env:PW -AsPlainText", "\"{{user}}:${PASS}@tcp(h)/x\"", "vault login -method=oidc", "requirepass is a directive2 of redis",
	} {
		in := quoteJSON(map[string]any{"command": text})
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%q: %s", text, out)
		}
	}
}
