package redact_test

import (
	"encoding/json"
	"fmt"
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
		"apiKey: !!str {M}", "api_keys:\n  - {M}\n  - \"{M}\"\n  - {M} \nport: 1", "     1\tpasswords:\n     2\t  - '{P}'\n     3\t  - {P}\n",
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
		"secrets:\n  - api-token2\n", "tokens:\n    - \"token1\"\n    - \"thistokenalsoworks\"\n", "the key is user:12345:profile", "tokens:\n  - word\n  - name: a2\n  - ${TOKEN_2}\n  - a sentence of 2\n", "auth:\n  - type: x2", "     1\tpassword: ${DB_PASSWORD}\n     2\ttoken: string\n", "git config --global user.email", "token: !!str\n", "password: !!null null",
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
		" id | name | password\n----+------+---------\n  1 | x    | {P}\n(1 row)", "+----+-----------+\n| id | password  |\n+----+-----------+\n|  1 | {P} |\n+----+-----------+", "| id | name | Password |\n|---:|------|----------|\n| 1 | x | `{P}` |", "     1\tname,token\n     2\tx,{M}\n", "+name,token\n+x,{M}\n", "name,value\nDB_PASSWORD,{P}\nMODE,dev\n", "API_KEY;{M}\r\n",
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
		"import (\n\tUser,\n\tPassword,\n\tToken_128_CBC_SHA,\n)", "  user, password = a1\n  base64_9x, b2\n", "case strfmt.Password, *strfmt.Password:\n\tx\ncase strfmt.UUID3, *strfmt.UUID3:", "name,tokens\nx,123456\ny,99", "| id | token |\n|---|---|\n| 1 | ADD_OP_2 |", "PASSWORD,string\nTOKEN,max_tokens_128\nA_TOKEN,\nSECRET,128", "model,token\ngpt,word\n",
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
		"sudo -u git mkdir -p /srv/x2", "docker run -u 1000 -p 8080:80 x", "ssh -l jane -p 2222 h", "cp -u -p a2 b2", "psql -U jane -p 5432", "mysql -u root -p my_database_22", "rsync -u src1 -p dst_22", "vault login -method=userpass username=x22", "net user jane", "htpasswd -c f jane", "htpasswd \"\", x", "curl -sSLu $USER:$PASS https://x", "xfreerdp /u:jane /p: /v:h", "git push -u origin -p", "mkdir -p a2/b",
		"the auth module v2 of", "AUTH_TOKEN_2 x", "req.SetBasicAuth(user, password)", "login(\"jane\", \"$Config::Config{cf_email}\")", "router.get('/x', auth('read2'), f)", "login(page, 'home')", "ConvertTo-SecureString Copy-Item", "ConvertTo-SecureString $env:PW -AsPlainText", "\"{{user}}:${PASS}@tcp(h)/x\"", "vault login -method=oidc", "requirepass is a directive2 of redis",
	} {
		in := quoteJSON(map[string]any{"command": text})
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%q: %s", text, out)
		}
	}
}

func TestFurtherMakersTokensAreTakenWhole(t *testing.T) {
	e := builtin(t)
	for _, v := range []string{
		"nfp_Zqumpm08hsE8JNpjJOQGa2rb19FlY0mG1ylv",
		"oy2uhf9q84nomefm928egnvfg3f8gr29hw7dz7po4ziyac",
		"sl.u.dFOcVwWBhqG5KSFdPE0SPgjtHfb1F6w70WAKadYEjW1W5bSapfQ7Dh3yEg42ipqnX1fkkjbd93oQGXy9KTUMAFGrM14gENAsIrsD3mbLFecbVjafQ4gGnRfXBkg8QysD4F",
		"ATTAc6d892aa68bfcc8c928344b16103485a1c292be01e4fc2d031c41885221c25f6aaf76fdc",
		"EAAGVQ3JYmzSgnYNPPtPQvv9PBmGGwYPnqwYo8kwQj1qH9CstFpS8gELRersl9a6sLABHHNBSz40ZgRCZ3IwEF6y5kyy3JBNWqb9Mt8sCG3CRKbKeyv6xQrM3hww",
		"AAAAxx12345:APA91bjhCS6jkdFKsvw8f46QqXYilvBSbELgGOBomUOLc877EgNB6bfbdUwFDrzIe3mGxHoL43ScQQYK8TUkl1JYnrw8tdVIIfHmxOCTQE8phIECUyUALDgxkhOFosZYG9uVqv8ExVuo",
		"aio_5Zbcb99JpX9M02bB3f8nUVRBoMFT",
		"fc-79a73aff5cfd4501150bf8e28d3e14be",
		"sb_secret_93lgWk7J6rWs77hSx91HqaksrCoAqUv",
		"napi_lPaJQ5WE2RlTZQcYTbYTTBPynZzih6tZg1v6tnOLD5pIrRzgiQXbhGLbitAh",
		"ctx7sk-CrNipR0HjXFZfTvMUHoXTBzyTzbmncNnz5Bh",
		"rpa_gJjH3LZ7wM6GKHVjk9tCSi5eIeeaAXZY7rzsj6HoV5D",
		"pcsk_0bA2DA_zqx2T4Rc1hotdHNYgt0sgCWBn1Bue6bsBu4RstbtSPrwfm74O5bFGEhS2v3y",
		"pat-na1-1c97570c-f1dc-b921-07c9-07cbeac0ddd6",
		"mdb_sa_sk_aM31d8gfXEsmvvroDJYlviXJxwM55dkAiByZzlcY",
		"sqp_3d4654c340b67c01ffff3195f80135f3b92c0742",
		"squ_3fb388dfa93ee3419300aed2e779eda314554f62",
		"amzn.mws.5b65a91d-1cbb-5371-bd6a-2ba11015b11f",
		"amzn1.oa2-cs.v1.5c9538f28f41ec36f2e5fa8b4ecfe5dc94fa78e5fa039c77d2f50540a7edca5b",
		"APP_USR-9277609509784485-376103-d63d17418e52d2d058b3abc4aa0df28d",
		"access_token$production$2993a370361fd9ee$c39ea79497344d3bcf7d49a2a09115e6",
		"SWMTKN-1-7425209ada870573ca7570574185c68b3e9239e086bc8dd10-8Q9T6IMaVF3bDWbcXh2iEHO4c",
		"wandb_v1_k7nEbkdtmq9yDCMSc0hf3KjWevOvPf4GNiMPSbf8nPblDH8qrCx1d12MZTOL",
		"cal_live_312427c89aedc8c08e026d8b2ba8ad5e",
		"AQ.Ab8RN6NgwNiCMNBxZNazLqccGJz1yZdasThsqxW8q12sxlahIJ",
		"csk-hh3Swkbx94xqjzJhiT6ItwyPMNv497UOJOEhYaWjKJe0LRrx",
		"PMAT-4rS6scD9QYok70gNLCSi6RDSXD",
		"https://outlook.office.com/webhook/2a384f00-b9fd-1498-46d5-257d7653acaa@fa9d88cd-671b-98f5-0044-af8603f5c1dc/IncomingWebhook/860e7527da285bdc443ccb28d23a0235/7eca5112-28bd-9e17-85d5-99875c7b2e13",
		"https://acme.webhook.office.com/webhookb2/36614eba-23a9-461d-2815-6e9c85e593b4@f9a9cc3b-953a-a71b-3830-a13fcf93e3e3/IncomingWebhook/f13c90335515c5d368d565a03f0ab4e9/df161652-e963-9911-b08f-d8fc2244218b",
		"https://hooks.zapier.com/hooks/catch/1234567/0zIUGEc",
		"https://open.feishu.cn/open-apis/bot/v2/hook/986187d2-5fef-061b-71ca-e867d7159768",
		"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=46b70cf3-a1b6-137f-55e8-4f9681b98c7b",
		"https://events.pagerduty.com/integration/765109fb5eb8102453678ef5b9daef94/enqueue",
	} {
		for _, form := range []string{"value {V} end", "\"{V}\",", "__{V}__", "<!--{V}-->", "**{V}**"} {
			out := redactJSON(t, e, quoteJSON(map[string]any{"t": strings.ReplaceAll(form, "{V}", v)}))
			if strings.Contains(out, v[:12]) || strings.Contains(out, v[len(v)-6:]) {
				t.Errorf("%s: %s: %s", form, v, out)
			}
		}
	}
	for _, text := range []string{
		"napi_create_string_utf8_v2", "aio_s3_bucket_config_v2_x9", "rpa_process_2024_11_final", "rfc-2119", "EAA 2024", "wandb_v1_", "csk-something-long-12", "https://hooks.zapier.com/hooks/", "https://outlook.office.com/mail/inbox/id/AAQkADAwATM0MDAAMS", "https://learn.microsoft.com/webhook.office.com/x", "pat-na1-docs", "sl.u.x", "__sk_model_name__",
	} {
		in := quoteJSON(map[string]any{"t": text})
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%q: %s", text, out)
		}
	}
}

func TestPasswordsThatAreSaidAreFound(t *testing.T) {
	e := builtin(t)
	for _, text := range []string{
		"the password for db.example.com is {P}", "log in with admin / {P}", "credentials: admin / {P}", "\"{P}\" is the password", "{P} is the root password", "sign in with {P} as the password", "the DB_PASSWORD is {P}", "DB_PASSWORD should be {P}",
		"password ({P})", "Password [{P}]", "Password \"{P}\"", "password '{P}' was rejected", "mdp : {P}", "clave: {P}", "пароль — {P}", "密码改成 {P}", "パスワード「{P}」", "heslo: {P}", "Heslo je {P}", "jelszó: {P}", "kata sandi: {P}", "κωδικός: {P}", "סיסמה: {P}",
		"the token is {M}.", "my api key is `{M}`", "the WiFi key is {P}", "psexec acme/jane:{P}@10.0.0.1", "-x jane:{P}@proxy.example:3128",
	} {
		in := strings.NewReplacer("{M}", machine, "{P}", "Sofa!zo_7763").Replace(text)
		out := redactJSON(t, e, quoteJSON(map[string]any{"text": in}))
		if strings.Contains(out, machine) || strings.Contains(out, "Sofa!zo_7763") {
			t.Errorf("%q: %s", text, out)
		}
	}
	for _, text := range []string{
		"password (RFC 2119)", "the password for the server is stored in Vault", "the token is <code>args[token.index2]</code>", "the key is to keep it", "the key is user_id_v2_x99", "the secret is rotated2", "Password \"must not be empty\"", "the password_policy is strict-v2.1", "SECRET_NAME is db-2024-x", "it is the password", "use as the password field",
		"log in with GitHub / GitLab", "credentials: user / password", "password == confirmPassword2", "image: app:v1.2@sha256:abc", "npm i pkg:foo@1.2.3", "12:30@office", "git@github.com:org/repo", "clave: valor", "the token is eyJ...", "la clave primaria es id_2",
	} {
		in := quoteJSON(map[string]any{"text": text})
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%q: %s", text, out)
		}
	}
}

func TestKeysAreReadWithoutWhatShowsAsNothing(t *testing.T) {
	e := builtin(t)
	for _, in := range []string{
		"{\"pass\u200bword\":\"hunter\"}", `{"refresh\u200b_token":"hunter1x"}`, `{"a":"{\"api\\u2060Key\":\"hunter1x\"}"}`, "{\"name\":\"PASS\u00adWORD\",\"value\":\"hunter\"}",
	} {
		if out := redactJSON(t, e, in); strings.Contains(out, "hunter") {
			t.Errorf("%s: %s", in, out)
		}
	}
}

func TestManifestsAreReadInListingsDiffsAndQuotes(t *testing.T) {
	e := builtin(t)
	manifest := "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\nstringData:\n  foo: plainword\n  config.yaml: |\n    a: plainword\n\n    b: plainword\n  bar: \"plainword\"\ntype: Opaque"
	each := func(f func(i int, line string) string) string {
		var b strings.Builder
		for i, l := range strings.Split(manifest, "\n") {
			b.WriteString(f(i+1, l) + "\n")
		}
		return b.String()
	}
	for _, text := range []string{
		manifest,
		each(func(i int, l string) string { return fmt.Sprintf("%6d\t%s", i, l) }),
		each(func(i int, l string) string { return fmt.Sprintf("%5d→%s", i, l) }),
		each(func(_ int, l string) string { return "+" + l }), each(func(_ int, l string) string { return "-" + l }), each(func(_ int, l string) string { return " " + l }),
		each(func(_ int, l string) string { return "> " + l }),
		each(func(_ int, l string) string { return "      " + l }),
		each(func(i int, l string) string { return fmt.Sprintf("k8s/x.yaml:%d:%s", i, l) }),
		each(func(i int, l string) string { return fmt.Sprintf("2026-01-02T10:00:%02d.1Z app-1  | %s", i, l) }),
	} {
		out := redactJSON(t, e, quoteJSON(map[string]any{"t": text}))
		if strings.Contains(out, "plainword") || !strings.Contains(out, "Opaque") {
			t.Errorf("%q: %s", text, out)
		}
	}
	for _, text := range []string{"pair {\"name\":\"password\",\"type\":\"text\",\"n\":1,\"value\":\"Sofa!zo_7763\"} end", "password: ${DB_PASSWORD:Sofazo7763x}", "[DB_PASSWORD] => Sofazo7763"} {
		if out := redactJSON(t, e, quoteJSON(map[string]any{"t": text})); strings.Contains(out, "7763") {
			t.Errorf("%q: %s", text, out)
		}
	}
}

func TestTokensInPartsOfStreamsInArraysOfOneElement(t *testing.T) {
	e := builtin(t)
	for _, part := range []string{
		`{"choices":[{"index":0,"delta":{"content":%s}}]}`, `{"candidates":[{"content":{"parts":[{"text":%s}]}}]}`, `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}}]}`, `[%s]`,
	} {
		for _, text := range []string{"my token " + ghp + " ok", "x\nDB_PASSWORD=Sofa!zo_7763x\ny"} {
			for _, size := range []int{3, 7, 15} {
				var parts, left []string
				for i := 0; i < len(text); i += size {
					parts = append(parts, fmt.Sprintf(part, quoteJSON(text[i:min(len(text), i+size)])))
				}
				out := redactJSON(t, e, `{"d":[`+strings.Join(parts, ",")+`]}`)
				if part[0] == '{' {
					for _, lines := range []string{strings.Join(parts, "\n"), "event: message\ndata: " + strings.Join(parts, "\n\ndata: ") + "\n\ndata: [DONE]\n"} {
						var got map[string]string
						if err := json.Unmarshal([]byte(redactJSON(t, e, quoteJSON(map[string]any{"out": lines}))), &got); err != nil {
							t.Fatal(err)
						}
						for i := 0; i < len(text); i += size {
							if p := text[i:min(len(text), i+size)]; (strings.Contains(ghp[8:], p) || strings.Contains("Sofa!zo_7763x", p)) && len(p) > 2 && strings.Contains(got["out"], fmt.Sprintf(part, quoteJSON(p))) {
								t.Errorf("%s in lines: %s", part, p)
							}
						}
					}
				}
				for i := 0; i < len(text); i += size {
					if p := text[i:min(len(text), i+size)]; strings.Contains(out, fmt.Sprintf(part, quoteJSON(p))) {
						left = append(left, p)
					}
				}
				if got := strings.Join(left, ""); strings.Contains(got, ghp[8:20]) || strings.Contains(got, "zo_77") {
					t.Errorf("%s in pieces of %d: %s", part, size, got)
				}
			}
		}
	}
}

func TestWhatIsTypedIntoAPasswordFieldIsFound(t *testing.T) {
	e := builtin(t)
	for _, in := range []string{
		`{"element":"Password field","ref":"e1","text":"Sofa!zo7763x"}`, `{"selector":"#password","text":"Sofa!zo7763x"}`, `{"selector":"input[name=password]","value":"Sofa!zo7763x"}`, `{"xpath":"//input[@id='password']","text":"Sofa!zo7763x"}`, `{"id":"password","value":"Sofa!zo7763x"}`,
		`{"label":"Password","input":"Sofa!zo7763x"}`, `{"id":"e7","name":"PASSWORD","value":"Sofa!zo7763x"}`, `{"name":"PASSWORD","text":"is it","value":"Sofa!zo7763x"}`,
		`{"secrets":{"db":"Sofa!zo7763x"}}`, `{"tokens":{"refresh":"Zvb67lERDvp7x2QHUbmHpTx1kOUmVwTa7763x"}}`, `{"cookies":[{"name":"connect.sid","value":"Zvb67lERDvp7x2QHUbmHpTx1kOUmVwTa7763x"}]}`,
	} {
		for _, doc := range []string{in, quoteJSON(map[string]any{"a": in})} {
			if out := redactJSON(t, e, doc); strings.Contains(out, "7763x") {
				t.Errorf("%s: %s", doc, out)
			}
		}
	}
	for _, in := range []string{
		`{"label":"Password","text":"Must have 12 characters"}`, `{"title":"Forgot password","text":"Continue"}`, `{"label":"Password","text":"Passwort"}`, `{"id":"e7","text":"Sofa!zo7763x"}`, `{"type":"text","text":"step 2","id":"token-count"}`,
		`{"tokens":{"input":12345,"output":678}}`, `{"secrets":{"name":"db-credentials-2024","mount":"/run/secrets/x2"}}`, `{"tokens":{"type":"bearer2","limit":"4096"}}`,
	} {
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%s: %s", in, out)
		}
	}
}
