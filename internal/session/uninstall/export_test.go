package uninstall

// StagesOf is stagesOf.
var StagesOf = stagesOf
