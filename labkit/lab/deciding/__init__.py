"""What becomes of an experiment: promotion, deletion, renewal, revalidation, and what each of them needs."""
