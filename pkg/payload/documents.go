package payload

// A Document is one of a file's documents, whether it is a manifest or not.
type Document struct {
	Number int    // in its file, as in Manifest
	Text   []byte // as in the file
	Start  int    // offset of the text in the file, in bytes
	Value  any    // as Kubernetes decodes it; nil if it can't be decoded
}

// Documents decodes the text of a file as Parse does, without rendering templates and substituting images. Empty
// documents are left out. It fails if the text can't be split into documents.
func Documents(text []byte) ([]Document, error) {
	chunks, wrong := split(text)
	if wrong != nil {
		return nil, wrong
	}
	var found []Document
	add := func(c chunk, value any) {
		found = append(found, Document{Number: len(found) + 1, Text: c.text, Start: c.offset, Value: value})
	}
	for _, chunk := range chunks {
		documents, err := chunk.decode()
		for _, d := range documents {
			if d.value != nil {
				add(d.text, d.value)
			}
		}
		if err != nil {
			add(chunk, nil)
		}
	}
	return found, nil
}
