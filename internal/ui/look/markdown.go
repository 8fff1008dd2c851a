package look

import (
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// Markdown returns a text of ours: paragraphs, lists with "-", indented or fenced code, bold text and code in a line.
// It has no headings and no links.
func Markdown(text string) g.Node {
	var out g.Group
	for i, part := range strings.Split(text, "\n```") {
		if i%2 == 1 { // code, after its language
			_, code, _ := strings.Cut(part, "\n")
			out = append(out, Block(code, maxCodeLines))
			continue
		}
		for block := range strings.SplitSeq(part, "\n\n") {
			switch trimmed := strings.TrimSpace(block); {
			case trimmed == "":
			case strings.HasPrefix(block, "    "):
				out = append(out, Block(block, maxCodeLines))
			case strings.HasPrefix(trimmed, "- "):
				out = append(out, Items(g.Map(strings.Split(trimmed[len("- "):], "\n- "), emphasised)...))
			default:
				out = append(out, h.P(emphasised(trimmed)))
			}
		}
	}
	return out
}

// maxCodeLines limits the lines of an example.
const maxCodeLines = 200

// emphasised returns a text with its code and its bold parts.
func emphasised(text string) g.Node {
	var out g.Group
	for i, part := range strings.Split(strings.ReplaceAll(text, "\n", " "), "`") {
		if i%2 == 1 {
			out = append(out, Code(part))
			continue
		}
		for k, piece := range strings.Split(part, "**") {
			out = append(out, g.If(k%2 == 1, h.Strong(Text(piece))), g.If(k%2 == 0, Text(piece)))
		}
	}
	return out
}
