"""Results of Polygraphy."""
