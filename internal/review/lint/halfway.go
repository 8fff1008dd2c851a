package lint

// halfwayRules are about updates that stop half-way, and fields that keep their values.
func halfwayRules() []Rule {
	return nil
}
