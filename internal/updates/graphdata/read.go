package graphdata

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/google/go-containerregistry/pkg/name"
	kjson "sigs.k8s.io/json"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// Schema is the version of the format of graph data that this package knows.
const Schema = "1.2.0"

// HaltsFile is the file with the halts.
const HaltsFile = "halts.yaml"

// Read reads a folder. The error lists all problems.
func Read(files fs.FS) (*Data, error) {
	r := reader{files: files, expressions: map[string]*regexp.Regexp{}}
	d := &Data{}
	r.checkSchema()
	d.Channels = readAll(&r, "channels", checkChannel)
	d.Blocked = readAll(&r, "blocked-edges", checkBlocked)
	d.Releases = readAll(&r, "releases", checkRelease)
	d.Barriers = readAll(&r, "barriers", checkNotice)
	d.DeadEnds = readAll(&r, "dead-ends", checkNotice)
	d.Phases = readAll(&r, "phases", checkPhase)
	r.readRaw(d)
	d.Halts = r.readHalts()
	if len(r.problems) > 0 {
		return nil, errors.Join(r.problems...)
	}
	if problems := d.link(); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return d, nil
}

// A reader reads the files of a folder.
type reader struct {
	files       fs.FS
	problems    []error
	expressions map[string]*regexp.Regexp // many files have the same one
}

// A document is a file with its problems.
type document struct {
	*reader
	file   string
	places *yamltext.FieldPlaces // nil for JSON
}

// problem adds a problem with a field, such as rings.canary.
func (d *document) problem(field, format string, values ...any) {
	text := fmt.Sprintf(format, values...)
	if field != "" {
		text = field + ": " + text
	}
	place := d.file
	if d.places != nil {
		isDelimiter := func(c rune) bool { return strings.ContainsRune(".[]", c) }
		line, _ := d.places.At(strings.FieldsFunc(field, isDelimiter)...)
		place = fmt.Sprintf("%s:%d", d.file, line)
	}
	d.problems = append(d.problems, fmt.Errorf("%s: %s", place, text))
}

// readAll reads the YAML files of a folder; it may be missing.
func readAll[T any](r *reader, folder string, check func(*document, *T)) []T {
	entries, err := fs.ReadDir(r.files, folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.problems = append(r.problems, err)
	}
	var all []T
	for _, entry := range entries {
		d := &document{reader: r, file: path.Join(folder, entry.Name())}
		switch path.Ext(entry.Name()) {
		case ".yaml":
			var item T
			if d.decode(&item) {
				check(d, &item)
			}
			all = append(all, item)
		case ".yml", ".json":
			d.problem("", "only files whose names end with .yaml are read: rename it")
		}
	}
	return all
}

// decode decodes a YAML file strictly; false if the value can't be used.
func (d *document) decode(value any) bool {
	text, err := fs.ReadFile(d.files, d.file)
	if err != nil {
		d.problems = append(d.problems, err)
		return false
	}
	root, wrong := yamltext.ParseFile(text)
	var content any
	if root != nil {
		if err := root.Decode(&content); err != nil {
			wrong = yamltext.Explain(err, text)
		}
	}
	switch {
	case wrong != nil:
		d.problems = append(d.problems, fmt.Errorf("%s:%d: %s", d.file, max(wrong.Line, 1), wrong.Message))
		return false
	case root == nil:
		d.problem("", "it is empty")
		return false
	}
	d.places = yamltext.NewPlaces(root)
	encoded, err := json.Marshal(content)
	if err != nil {
		d.problem("", "a key is not a text")
		return false
	}
	return d.unmarshal(encoded, value)
}

// unmarshal decodes JSON strictly; false if the value can't be used.
func (d *document) unmarshal(encoded []byte, value any) bool {
	unknown, err := kjson.UnmarshalStrict(encoded, value)
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType):
		d.problem(wrongType.Field, "its value has the wrong type: %s", wrongType.Value)
	case err != nil:
		d.problem("", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	for _, problem := range unknown {
		kind, field, _ := strings.Cut(strings.TrimSuffix(problem.Error(), `"`), ` "`) // unknown field "rings.x.strat"
		name := field[strings.LastIndex(field, ".")+1:]
		if near := printable.Nearest(name, fieldNames(reflect.TypeOf(value), nil), 3); near != "" {
			kind += ": did you mean " + near + "?"
		}
		d.problem(field, "%s", kind)
	}
	return err == nil
}

// fieldNames appends the names of all fields of a type.
func fieldNames(kind reflect.Type, names []string) []string {
	switch kind.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return fieldNames(kind.Elem(), names)
	case reflect.Struct:
		for field := range kind.Fields() {
			if tag, hasTag := field.Tag.Lookup("json"); hasTag {
				names = fieldNames(field.Type, names)
				if name, _, _ := strings.Cut(tag, ","); name != "" && name != "-" {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

func (r *reader) checkSchema() {
	d := document{reader: r, file: "version"}
	text, err := fs.ReadFile(r.files, d.file)
	if err != nil {
		d.problem("", "it is missing: write the version of the format, 1.1.0, into it")
		return
	}
	known := semver.MustParse(Schema)
	written := strings.TrimSpace(string(text))
	schema, err := semver.Parse(written)
	if err != nil || schema.Major != known.Major {
		d.problem("", "%q is not a known version of the format, such as %s", written, Schema)
	}
}

// version checks a field with a version.
func (d *document) version(field, text string) {
	if _, err := semver.Parse(text); err != nil {
		d.problem(field, "%q is not a semantic version such as 1.4.1", text)
	}
}

func (d *document) versions(field string, all []string) {
	for i, text := range all {
		d.version(fmt.Sprintf("%s[%d]", field, i), text)
	}
}

// expression checks a field with a regular expression.
func (d *document) expression(field, text string) *regexp.Regexp {
	if known, isKnown := d.expressions[text]; isKnown {
		return known
	}
	expression, err := regexp.Compile(text)
	if err != nil {
		d.problem(field, "%q is not a regular expression: %s", text, err)
	}
	d.expressions[text] = expression
	return expression
}

// The names of channels and architectures are those that Cincinnati takes. They are also names of files.
var (
	channelName      = regexp.MustCompile(`^[0-9a-z-][0-9a-z.-]*$`)
	architectureName = regexp.MustCompile(`^[0-9a-z]+$`)
)

func checkChannel(d *document, c *Channel) {
	c.File = d.file
	if !channelName.MatchString(c.Name) {
		d.problem("name", "%q is not the name of a channel: it has only a-z, 0-9, - and .", c.Name)
	}
	d.versions("versions", c.Versions)
}

func checkBlocked(d *document, b *BlockedEdge) {
	b.File = d.file
	d.version("to", b.To)
	if b.From == "" {
		d.problem("from", "it is missing: write .* for all versions")
	}
	b.from = d.expression("from", b.From)
	if b.Name+b.URL+b.Message+b.FixedIn+b.AutoExtend == "" && len(b.MatchingRules) == 0 {
		return // blocked for all clusters
	}
	if b.Name == "" || b.URL == "" || b.Message == "" || len(b.MatchingRules) == 0 {
		d.problem("", "a risk has name, url, message and matchingRules; edges that are blocked for all clusters have "+
			"only to and from")
	}
	for i, rule := range b.MatchingRules {
		switch {
		case rule.Type == "":
			d.problem(fmt.Sprintf("matchingRules[%d].type", i), "it is missing: write Always or PromQL")
		case rule.Type == "PromQL" && (rule.PromQL == nil || rule.PromQL.PromQL == ""):
			d.problem(fmt.Sprintf("matchingRules[%d].promql", i), "the query promql.promql is missing")
		}
	}
}

func checkRelease(d *document, release *Release) {
	release.File = d.file
	d.version("version", release.Version)
	d.versions("previous", release.Previous)
	d.versions("next", release.Next)
	if _, err := name.NewDigest(release.Image); err != nil {
		d.problem("image", "%q has no digest, as in registry.example/shop@sha256:...", release.Image)
	}
	if release.Architecture != "" && !architectureName.MatchString(release.Architecture) {
		d.problem("architecture", "%q is not an architecture such as amd64", release.Architecture)
	}
	if strings.Contains(release.Version, "+") && release.Metadata[keyArch] == "" {
		d.problem("version", "the architecture has a field of its own: leave out what is behind +")
	}
}

func checkNotice(d *document, n *Notice) {
	n.File = d.file
	d.version("version", n.Version)
	if n.Reason == "" {
		d.problem("reason", "it is missing: users read it")
	}
}

func checkPhase(d *document, p *Phase) {
	p.File = d.file
	d.version("to", p.To)
	if p.From != "" {
		p.from = d.expression("from", p.From)
	}
	if err := p.Ramp.Validate(); err != nil {
		d.problem("", "%s", err)
	}
	for ring, ramp := range p.Rings {
		if err := ramp.Validate(); err != nil {
			d.problem("rings."+ring, "%s", err)
		}
	}
	if err := p.Policy.Validate(); err != nil {
		d.problem("", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (r *reader) readRaw(data *Data) {
	d := document{reader: r, file: "raw/metadata.json"}
	text, err := fs.ReadFile(r.files, d.file)
	if err == nil {
		d.unmarshal(text, &data.Raw)
	} else if !errors.Is(err, fs.ErrNotExist) {
		r.problems = append(r.problems, err)
	}
	for version := range data.Raw {
		d.version(version, version)
	}
}

// ReadHalts reads the halts of a folder that has no graph data, where a service writes them beside a folder that it
// can't write.
func ReadHalts(files fs.FS) ([]Halt, error) {
	r := reader{files: files}
	halts := r.readHalts()
	return halts, errors.Join(r.problems...)
}

func (r *reader) readHalts() []Halt {
	if _, err := fs.Stat(r.files, HaltsFile); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var halts []Halt
	d := document{reader: r, file: HaltsFile}
	if !d.decode(&halts) {
		return nil
	}
	for i, halt := range halts {
		field := fmt.Sprintf("[%d]", i)
		d.version(field+".to", halt.To)
		if halt.At.IsZero() {
			d.problem(field+".at", "it is missing")
		}
		if (halt.Reason == "") == (halt.Resumed == "") {
			d.problem(field, "it has either a reason or resumed")
		}
	}
	return halts
}

// AppendHalt appends a line to the halts of a folder. The line is JSON, which is YAML as well.
func AppendHalt(folder string, halt Halt) error {
	path := filepath.Join(folder, HaltsFile)
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := json.Marshal(halt)
	if err != nil {
		return err
	}
	line := "- " + string(text) + "\n"
	if len(before) > 0 && before[len(before)-1] != '\n' { // a person has edited it
		line = "\n" + line
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line) // in one piece, so that a reader never sees a part
	return errors.Join(err, file.Sync(), file.Close())
}
