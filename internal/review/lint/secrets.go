package lint

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// secretRules are about certificates and Secrets that an API server accepts, and that do not work.
func secretRules() []Rule {
	return []Rule{
		{"bad-certificate", Error, nothing, checkBadCertificate},
		{"untrusted-certificate", Error, nothing, checkUntrustedCertificate},
		{"damaged-value", Warning, nothing, checkDamagedValue},
		{"missing-variable", Warning, nothing, checkMissingVariable},
		{"missing-file", Warning, needsPrevious, checkMissingFile},
		{"unusable-mount", Warning, nothing, checkUnusableMount},
		{"pull-secret", Warning, nothing, checkPullSecret},
	}
}

// checkDamagedValue looks for values of ConfigMaps and Secrets that the program which reads them can't use. Values that
// the previous payload had as well are left out.
func checkDamagedValue(s *subject, r *reporter) {
	if s.previous != nil {
		checkParted(s, r)
	}
	for _, m := range slices.Concat(s.byKind[kinds.Secret], s.byKind[kinds.ConfigMap]) {
		old := s.previousOf(m)
		if m.isTombstone || m.IsCreateOnly() || old != nil && m.SameTextAs(old.Manifest) {
			continue
		}
		for _, key := range m.keys() {
			if key == corev1.TLSCertKey || key == corev1.TLSPrivateKeyKey { // the rule bad-certificate looks at these
				if why := m.whyShort(); key == corev1.TLSCertKey && why != "" && old != nil {
					r.field(m, []string{m.dataField(key), key}, "%s %s", key, why)
				}
				continue
			}
			now := newConfigValue(s, m, key)
			why := now.whyUnusable()
			if old != nil {
				before := newConfigValue(s, old, key)
				switch isSame := before.isSet && before.text == now.text; {
				case isSame && m.isOverridden(key) && !old.isOverridden(key):
					why = "has another value in data, which the one in stringData overrides: remove one"
				case isSame:
					continue
				case why == "" && before.isSet:
					why = now.whyWorse(before)
				}
			}
			if why != "" {
				r.field(m, now.field, "%s %s", key, why)
			}
		}
	}
}

// value returns the value of a key of a ConfigMap or a Secret as programs read it, and whether it has the key.
func (m *manifest) value(key string) (value string, isSet bool) {
	if text, isText := m.get("stringData", key).(string); isText {
		return text, true
	}
	text, isSet := m.get("data", key).(string)
	if m.groupKind() != kinds.Secret || !isSet {
		return text, isSet
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	return string(decoded), err == nil
}

// isOverridden reports whether a Secret has two values for a key. The API server takes that in stringData.
func (m *manifest) isOverridden(key string) bool {
	encoded, isEncoded := m.get("data", key).(string)
	text, isText := m.get("stringData", key).(string)
	return isEncoded && isText && encoded != base64.StdEncoding.EncodeToString([]byte(text))
}

// keys returns the keys of a ConfigMap or a Secret, in order.
func (m *manifest) keys() (keys []string) {
	for _, field := range dataFields {
		values, _ := m.get(field).(map[string]any)
		keys = append(keys, sortedKeys(values)...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// A configValue is a value of a ConfigMap or a Secret.
type configValue struct {
	key, text  string
	trimmed    string // the text without blanks and line ends around it
	field      []string
	isSet      bool
	isSecret   bool
	isVariable bool // whether a container of this payload reads it as a variable
}

func newConfigValue(s *subject, m *manifest, key string) configValue {
	text, isSet := m.value(key)
	return configValue{
		key: key, text: text, trimmed: strings.TrimSpace(text), isSet: isSet,
		field: []string{m.dataField(key), key}, isSecret: m.groupKind() == kinds.Secret,
		isVariable: slices.ContainsFunc(s.usesOf(m), func(u use) bool {
			isRead := slices.Contains(u.Keys, key) || len(u.Keys) == 0 && len(validation.IsCIdentifier(key)) == 0
			return isVariable(u.Reference) && isRead
		}),
	}
}

// whyUnusable returns the reason why no program can use a value, regardless of the one before; "" if some can.
func (v configValue) whyUnusable() string {
	switch isEncoded := v.isSecret && v.field[0] == "data"; {
	case !v.isVariable || !isEncoded:
		return ""
	case !utf8.ValidString(v.text) || strings.Contains(v.text, "\x00"):
		return "is base64 of bytes that are not text, so no container with the variable starts: write a text in " +
			"stringData"
	case v.trimmed != "" && v.trimmed+"\n" == v.text && v.lines() == 1:
		return "ends with a line end, which becomes a part of the variable: encode it with printf or echo -n, or " +
			"write it in stringData"
	default:
		return ""
	}
}

// lines returns the number of lines of a value.
func (v configValue) lines() int { return strings.Count(v.trimmed, "\n") + 1 }

// placeholder matches a value that still has to be filled in.
var placeholder = regexp.MustCompile(`^(\$\{\w+\}|\$\(\w+\)|\$[A-Z][A-Z_]+|<[^<>]+>|\{\{.*\}\}|(?i:change[-_ ]?me|` +
	`replace[-_ ]?(me|with.*)|to[-_ ]?do|tbd|fixme|placeholder|redacted|x{3,}|\*{3,}|your[-_ ].*))$`)

// whyWorse returns the reason why a program can no longer use a value that has changed; "" if it can.
func (v configValue) whyWorse(before configValue) string {
	const carriageReturn = "\r\n"
	switch isRead := v.isSecret || v.isVariable; {
	case v.trimmed == "" && before.trimmed != "" && v.isSecret:
		return "is empty, and was not in the previous payload: write the value"
	case isRead && placeholder.MatchString(v.trimmed) && !placeholder.MatchString(before.trimmed):
		return "is the placeholder " + v.trimmed + ", which nothing replaces: write the value"
	case v.isSecret && isEncodedText(v.trimmed) && !isEncodedText(before.trimmed):
		return "is base64 of a text when pods read it, and was not in the previous payload: write the text itself in " +
			"stringData"
	case v.isVariable && v.lines() == 1 && v.trimmed != v.text && before.trimmed == before.text:
		return "begins or ends with a blank or a line end, which becomes a part of the variable: remove it"
	case before.lines() > 1 && v.lines() == 1 && (strings.Contains(v.text, `\n`) ||
		slices.Equal(strings.Fields(v.text), strings.Fields(before.text))):
		return "is one line, and had several in the previous payload: write a block that begins with |"
	case strings.Contains(v.text, carriageReturn) && !strings.Contains(before.text, carriageReturn) &&
		(v.isSecret || strings.HasPrefix(v.text, "#!")):
		return "has a carriage return before each line end, as Windows writes them, which is a part of its lines: " +
			"remove them"
	case strings.HasPrefix(v.text, "\ufeff") && !strings.HasPrefix(before.text, "\ufeff"):
		return "begins with a byte order mark, which many programs do not accept: remove it"
	default:
		return v.whyUnparsed(before)
	}
}

// isEncodedText reports whether a value is base64 of a text of printable characters. Random bytes are not.
func isEncodedText(value string) bool {
	decoded, err := base64.StdEncoding.DecodeString(value)
	return err == nil && len(decoded) > 2 && !bytes.ContainsFunc(decoded, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsPrint(r) && r != '\n'
	})
}

// whyUnparsed returns the reason why a value no longer has the format of the one before, according to its key or its
// first character; "" if it has.
func (v configValue) whyUnparsed(before configValue) string {
	isJSON := func(text string) bool { return json.Valid([]byte(text)) }
	isYAML := func(text string) bool { _, err := yaml.YAMLToJSON([]byte(text)); return err == nil }
	switch parts := strings.Split(v.key, "."); {
	case strings.HasPrefix(before.text, "{") && isJSON(before.text) && !isJSON(v.text):
		return "is not valid JSON, and was in the previous payload: correct it"
	case slices.Contains([]string{"yaml", "yml"}, parts[len(parts)-1]) && isYAML(before.text) && !isYAML(v.text) &&
		!strings.Contains(v.text, "{{"): // else a template
		return "is not valid YAML, and was in the previous payload: correct it"
	default:
		return ""
	}
}
