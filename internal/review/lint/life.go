package lint

// lifeRules are about pods that are not scheduled, that do not start, or that are killed.
func lifeRules() []Rule {
	return nil
}
