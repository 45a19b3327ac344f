"""/c/{id}/share: links through which others see a comparison."""
