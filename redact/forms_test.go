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
