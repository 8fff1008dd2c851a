package chart

import (
	"encoding/json"
	"fmt"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// A value is a row of the table of values.
type value struct {
	Name        string // with the names of the values that contain it
	Default     string // JSON
	Description string
}

// maxDefault is the longest default that the table of values has.
const maxDefault = 60

// Code returns the default as text of Markdown.
func (v value) Code() string {
	if len(v.Default) > maxDefault {
		return "see values.yaml"
	}
	return "`" + v.Default + "`"
}

// Line returns the description without line ends.
func (v value) Line() string { return strings.ReplaceAll(v.Description, "\n", " ") }

// readValues returns the values that a schema describes, in its order, and the file values.yaml with them.
func readValues(schema []byte) ([]value, []byte, error) {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(schema, &document); err != nil {
		return nil, nil, err
	}
	var file strings.Builder
	file.WriteString("# The values of this chart. The file values.schema.json has their types.\n")
	values, err := describe(document.Content[0], "", &file)
	return values, []byte(file.String()), err
}

// describe returns the values of an object, whose name is the prefix, and writes them to the file.
func describe(object *yamlv3.Node, prefix string, file *strings.Builder) ([]value, error) {
	var values []value
	indent := strings.Repeat("  ", strings.Count(prefix, "."))
	properties := child(object, "properties")
	for i := 0; i < len(properties.Content); i += 2 {
		name, property := properties.Content[i].Value, properties.Content[i+1]
		description := child(property, "description")
		if description == nil { // Helm's own value
			continue
		}
		if prefix == "" {
			file.WriteString("\n")
		}
		fmt.Fprintf(file, "%s# %s\n%s%s:", indent,
			strings.ReplaceAll(description.Value, "\n", "\n"+indent+"# "), indent, name)
		standard := child(property, "default")
		if standard == nil {
			file.WriteString("\n")
			inner, err := describe(property, prefix+name+".", file)
			if err != nil {
				return nil, err
			}
			values = append(values, inner...)
			continue
		}
		inJSON, inYAML, err := encode(standard)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(file, "%s\n", inYAML)
		values = append(values, value{prefix + name, inJSON, description.Value})
	}
	return values, nil
}

// encode returns a default as JSON, and as YAML to write after the colon of its name.
func encode(standard *yamlv3.Node) (inJSON, inYAML string, err error) {
	var decoded any
	if err := standard.Decode(&decoded); err != nil {
		return "", "", err
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		return "", "", err
	}
	block, err := yaml.JSONToYAML(text)
	inYAML = strings.TrimSuffix(string(block), "\n")
	switch {
	case len(standard.Content) == 0: // a scalar, or empty
		inYAML = " " + inYAML
	case standard.Kind == yamlv3.MappingNode:
		inYAML = "\n  " + strings.ReplaceAll(inYAML, "\n", "\n  ")
	default:
		inYAML = "\n" + inYAML
	}
	return string(text), inYAML, err
}

// child returns the value of a key of a mapping, or nil.
func child(mapping *yamlv3.Node, key string) *yamlv3.Node {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// toJSON returns a schema as an indented document of JSON.
func toJSON(schema []byte) ([]byte, error) {
	var document any
	if err := yaml.Unmarshal(schema, &document); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(document, "", "  ")
	return append(text, '\n'), err
}
