package lint_test

import (
	"encoding/xml"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A node is an element of a schema, or of a document.
type node struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []node     `xml:",any"`
	Text     string     `xml:",chardata"`
}

func (n node) attr(name string) string {
	for _, a := range n.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// all are the children of some name.
func (n node) all(name string) []node {
	var found []node
	for _, child := range n.Children {
		if child.XMLName.Local == name {
			found = append(found, child)
		}
	}
	return found
}

// A schema is an XML schema, of as much of that language as testdata/junit.xsd needs:
// sequences of elements, attributes, and patterns. Complete validators wrap a library
// in C, or are young: for one test file they are too much.
type schema struct {
	elements, types map[string]node // those that others name
	patterns        map[string]*regexp.Regexp
}

func readSchema(t *testing.T, file string) schema {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var root node
	if err := xml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	mustBeKnown(t, root)
	s := schema{
		elements: map[string]node{},
		types:    map[string]node{},
		patterns: map[string]*regexp.Regexp{"xs:string": regexp.MustCompile("")},
	}
	for _, e := range root.all("element") {
		s.elements[e.attr("name")] = e
	}
	for _, c := range root.all("complexType") {
		s.types[c.attr("name")] = c
	}
	for _, simple := range root.all("simpleType") {
		pattern := simple.all("restriction")[0].all("pattern")[0].attr("value")
		s.patterns[simple.attr("name")] = regexp.MustCompile("^(?:" + pattern + ")$")
	}
	return s
}

// mustBeKnown fails if a schema has a rule that validate would ignore.
func mustBeKnown(t *testing.T, n node) {
	t.Helper()
	known := []string{"schema", "simpleType", "restriction", "pattern", "complexType", "attribute", "element",
		"sequence"}
	if !slices.Contains(known, n.XMLName.Local) {
		t.Fatalf("the schema has xs:%s, which validate does not support", n.XMLName.Local)
	}
	for _, child := range n.Children {
		mustBeKnown(t, child)
	}
}

// validate returns the errors in a document, in the order of its elements.
func (s schema) validate(document []byte) []string {
	var root node
	if err := xml.Unmarshal(document, &root); err != nil {
		return []string{err.Error()}
	}
	declared, found := s.elements[root.XMLName.Local]
	if !found {
		return []string{"the root is " + root.XMLName.Local}
	}
	return s.element(root, declared)
}

func (s schema) element(n, declared node) []string {
	kind := s.types[declared.attr("type")]
	if inline := declared.all("complexType"); len(inline) > 0 {
		kind = inline[0]
	}
	wrong := s.attributes(n, kind)
	isText := s.patterns[declared.attr("type")] != nil || kind.attr("mixed") == "true"
	if !isText && strings.TrimSpace(n.Text) != "" {
		wrong = append(wrong, n.XMLName.Local+" has text")
	}
	children := n.Children
	for _, sequence := range kind.all("sequence") {
		for _, particle := range sequence.all("element") {
			if ref := particle.attr("ref"); ref != "" {
				limits := particle.Attrs
				particle = s.elements[ref]
				particle.Attrs = append(limits, particle.Attrs...)
			}
			count := 0
			for ; len(children) > 0 && children[0].XMLName.Local == particle.attr("name"); children = children[1:] {
				wrong = append(wrong, s.element(children[0], particle)...)
				count++
			}
			if count == 0 && particle.attr("minOccurs") != "0" ||
				count > 1 && particle.attr("maxOccurs") != "unbounded" {
				wrong = append(wrong, fmt.Sprintf("%s has %d of %s", n.XMLName.Local, count, particle.attr("name")))
			}
		}
	}
	if len(children) > 0 {
		wrong = append(wrong, fmt.Sprintf("%s has a %s there", n.XMLName.Local, children[0].XMLName.Local))
	}
	return wrong
}

func (s schema) attributes(n, kind node) []string {
	var wrong []string
	attributes := map[string]string{}
	for _, a := range n.Attrs {
		attributes[a.Name.Local] = a.Value
	}
	for _, a := range kind.all("attribute") {
		value, found := attributes[a.attr("name")]
		delete(attributes, a.attr("name"))
		if !found && a.attr("use") == "required" || found && !s.patterns[a.attr("type")].MatchString(value) {
			wrong = append(wrong, fmt.Sprintf("%s has %s=%q", n.XMLName.Local, a.attr("name"), value))
		}
	}
	if len(attributes) > 0 {
		wrong = append(wrong, fmt.Sprintf("%s has other attributes: %v", n.XMLName.Local, attributes))
	}
	return wrong
}

// TestSchemaRefuses checks that the schema refuses each kind of invalid document.
func TestSchemaRefuses(t *testing.T) {
	const head, foot = `<testsuites name="a" tests="1" failures="0" errors="0"><testsuite name="a" tests="1" failures="0" errors="0" skipped="0">`, `</testsuite></testsuites>`
	junit := readSchema(t, "testdata/junit.xsd")
	for text, want := range map[string]string{
		"<testsuites>": "XML syntax error on line 1: unexpected EOF",
		"<testcase/>":  `testcase has classname="", testcase has name=""`,
		"<tests/>":     "the root is tests",
		head + `<testcase classname="a" name="a"><failure message="m"/><failure message="m"/></testcase>` +
			foot: "testcase has 2 of failure",
		head + `<testcase classname="a" name="a"><failure message="m"/><skipped message="m"/></testcase>` +
			foot: "testcase has a skipped there",
		head + `<testcase classname="a" name="a"><failure/></testcase>` +
			foot: `failure has message=""`,
		head + `<testcase classname="a" name="a" time="0"/>` + foot: "testcase has other attributes: map[time:0]",
		head + `<testcase classname="a" name="a">text</testcase>` +
			foot: "testcase has text",
		head + `<testcase classname="a" name="a"><system-out a="b">text</system-out></testcase>` +
			foot: "system-out has other attributes: map[a:b]",
		strings.Replace(head, `tests="1"`, `tests="-1"`, 1) +
			foot: `testsuites has tests="-1"`,
		head +
			`<testcase classname="a" name="a"><failure message="m">t</failure><system-out>t</system-out></testcase>` +
			foot: "",
		head + foot: "",
	} {
		if got := strings.Join(junit.validate([]byte(text)), ", "); got != want {
			t.Errorf("%s: got errors %q, want %q", text, got, want)
		}
	}
}
