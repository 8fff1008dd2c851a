package lint

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
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
		{"untrusted-certificate", Warning, nothing, checkUntrustedCertificate},
		{"damaged-value", Warning, nothing, checkDamagedValue},
		{"missing-variable", Warning, nothing, checkMissingVariable},
		{"missing-file", Warning, needsPrevious, checkMissingFile},
		{"unusable-mount", Warning, nothing, checkUnusableMount},
		{"pull-secret", Warning, nothing, checkPullSecret},
	}
}

// checkDamagedValue looks for values of ConfigMaps and Secrets that the program which reads them can't use.
func checkDamagedValue(s *subject, r *reporter) {
	if s.previous != nil {
		checkParted(s, r)
	}
	for _, m := range slices.Concat(s.byKind[kinds.Secret], s.byKind[kinds.ConfigMap]) {
		if old := s.previousOf(m); m.isTombstone || m.IsCreateOnly() || old != nil && m.SameTextAs(old.Manifest) {
			continue
		}
		for _, key := range m.keys() {
			if why := s.whyDamaged(m, key); why != "" {
				r.field(m, []string{m.dataField(key), key}, "%s %s", key, why)
			}
		}
	}
}

// whyDamaged returns the reason why programs can't use a value of a ConfigMap or a Secret; "" if they can, or if the
// previous payload has the same value. The rule bad-certificate looks at certificates.
func (s *subject) whyDamaged(m *manifest, key string) string {
	before, wasSet, wasText := "", false, false
	if old := s.previousOf(m); old != nil {
		before, wasSet = old.value(key)
		wasText = before != "" && old.text("stringData", key) == before
	}
	v := newConfigValue(s, m, key)
	if key == corev1.TLSCertKey || key == corev1.TLSPrivateKeyKey || wasSet && before == v.text {
		return ""
	}
	switch why := v.whyUnusable(); {
	case wasText && v.isEncoded && m.text("data", key) == before:
		return "is the text that stringData had in the previous payload, and data is decoded, so pods read something " +
			"else: write the text in stringData, or its base64 in data"
	case why == "" && wasSet:
		return cmp.Or(v.whyWorse(before), s.whyAlone(m, key, before))
	default:
		return why
	}
}

// passwordKey matches the keys of passwords, which programs and their servers have in common.
var passwordKey = regexp.MustCompile(`(?i)pass|token|secret`)

// whyAlone returns the reason why a value has to change in another Secret, too, which had the same password or all the
// same values; "" if none has.
func (s *subject) whyAlone(m *manifest, key, before string) string {
	const minPassword = 8 // shorter ones may be equal by chance
	for _, twin := range s.byKind[kinds.Secret] {
		old, oldTwin := s.previousOf(m), s.previousOf(twin)
		isPassword := len(before) >= minPassword && passwordKey.MatchString(key)
		field := old.dataField(key)
		if m.groupKind() != kinds.Secret || before == "" || oldTwin == nil || twin.isTombstone || twin.IsCreateOnly() ||
			!isPassword && !reflect.DeepEqual(old.get(field), oldTwin.get(field)) {
			continue
		}
		for _, other := range twin.keys() {
			had, _ := oldTwin.value(other)
			if has, _ := twin.value(other); had == before && has == before {
				return fmt.Sprintf("has changed, and %s of %s (%s) still has the value that both had, so a program "+
					"and its server may disagree: change both together", other, twin.id, twin.place())
			}
		}
	}
	return ""
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
	isSecret   bool
	isEncoded  bool // whether the manifest has it in base64
	isVariable bool // whether a container of this payload reads it as a variable
}

func newConfigValue(s *subject, m *manifest, key string) configValue {
	text, _ := m.value(key)
	isSecret := m.groupKind() == kinds.Secret
	return configValue{
		key: key, text: text, trimmed: strings.TrimSpace(text),
		isSecret: isSecret, isEncoded: isSecret && m.dataField(key) == "data",
		isVariable: slices.ContainsFunc(s.usesOf(m), func(u use) bool {
			isRead := slices.Contains(u.Keys, key) || len(u.Keys) == 0 && len(validation.IsCIdentifier(key)) == 0
			return isVariable(u.Reference) && isRead
		}),
	}
}

// whyUnusable returns the reason why no program can use a value, regardless of the one before; "" if some can.
func (v configValue) whyUnusable() string {
	switch {
	case !v.isVariable || !v.isEncoded:
		return ""
	case !utf8.ValidString(v.text) || strings.Contains(v.text, "\x00"):
		return "is base64 of bytes that are not text, so no container with the variable starts: write a text in " +
			"stringData"
	case v.trimmed != "" && v.trimmed+"\n" == v.text && !strings.Contains(v.trimmed, "\n"):
		return "ends with a line end, which becomes a part of the variable: encode it with printf or echo -n, or " +
			"write it in stringData"
	default:
		return ""
	}
}

// placeholder matches a value that still has to be filled in.
var placeholder = regexp.MustCompile(`^(\$\{\w+\}|\$\(\w+\)|\$[A-Z][A-Z_]+|<[^<>]+>|\{\{.*\}\}|(?i:change[-_ ]?me|` +
	`replace[-_ ]?(me|with.*)|to[-_ ]?do|tbd|fixme|placeholder|redacted|x{3,}|\*{3,}|your[-_ ].*))$`)

// whyWorse returns the reason why a program can no longer use a value that has changed; "" if it can.
func (v configValue) whyWorse(before string) string {
	const carriageReturn = "\r\n"
	isYAML := strings.HasSuffix(v.key, ".yaml") || strings.HasSuffix(v.key, ".yml")
	switch had := strings.TrimSpace(before); {
	case v.trimmed == "" && had != "" && v.isSecret:
		return "is empty, and was not in the previous payload: write the value"
	case (v.isSecret || v.isVariable) && placeholder.MatchString(v.trimmed) && !placeholder.MatchString(had):
		return "is the placeholder " + v.trimmed + ", which nothing replaces: write the value"
	case v.isSecret && isEncodedText(v.trimmed) && !isEncodedText(had):
		return "is base64 of a text when pods read it, and was not in the previous payload: write the text itself in " +
			"stringData"
	case v.isVariable && !strings.Contains(v.trimmed, "\n") && v.trimmed != v.text && had == before:
		return "begins or ends with a blank or a line end, which becomes a part of the variable: remove it"
	case strings.Contains(v.text, carriageReturn) && !strings.Contains(before, carriageReturn) &&
		(v.isSecret || strings.HasPrefix(v.text, "#!")):
		return "has a carriage return before each line end, as Windows writes them, which is a part of its lines: " +
			"remove them"
	case strings.HasPrefix(before, "{") && json.Valid([]byte(before)) && !json.Valid([]byte(v.text)):
		return "is not valid JSON, and was in the previous payload: correct it"
	case isYAML && isParsed(before) && !isParsed(v.text) && !strings.Contains(v.text, "{{"): // else a template
		return "is not valid YAML, and was in the previous payload: correct it"
	default:
		return ""
	}
}

// isParsed reports whether a text is YAML.
func isParsed(text string) bool {
	_, err := yaml.YAMLToJSON([]byte(text))
	return err == nil
}

// isEncodedText reports whether a value is base64 of a text of printable characters. Random bytes are not.
func isEncodedText(value string) bool {
	decoded, err := base64.StdEncoding.DecodeString(value)
	return err == nil && len(decoded) > 2 && !bytes.ContainsFunc(decoded, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsPrint(r) && r != '\n'
	})
}
