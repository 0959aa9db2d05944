"""What several mechanisms and layers share: components, attention, neighbourhoods, conventions, letters."""
